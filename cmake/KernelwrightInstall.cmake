# What `cmake --install` installs: the command, the library's headers and archives, and a package so that
# find_package(kernelwright) gives kernelwright::runtime. Of contract/ only words.h is installed, the enums of a config.
include(CMakePackageConfigHelpers)
set(KERNELWRIGHT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/kernelwright)

# kernelwright_install_library(<target>): adds it to the package, as kernelwright::<the target's name without its
# prefix>.
function(kernelwright_install_library target)
  string(REGEX REPLACE "^kernelwright_" "" name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  install(TARGETS ${target} EXPORT kernelwright
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# A shared kernelwright_c, once it exists, is one more name here.
foreach(target kernelwright_contract kernelwright_template_data kernelwright_tuned_data kernelwright_generator
        kernelwright_process kernelwright_emulator kernelwright_runtime kernelwright_c)
  if(TARGET ${target})
    kernelwright_install_library(${target})
  endif()
endforeach()
install(TARGETS kernelwright_cli kernelwright_cc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The manual page and completions that the command has written (cli/CMakeLists.txt), installed where man and the shells
# look.
set(KERNELWRIGHT_COMMAND_DOCS ${CMAKE_BINARY_DIR}/command_docs)
install(FILES ${KERNELWRIGHT_COMMAND_DOCS}/kernelwright.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${KERNELWRIGHT_COMMAND_DOCS}/kernelwright.bash RENAME kernelwright
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${KERNELWRIGHT_COMMAND_DOCS}/_kernelwright DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${KERNELWRIGHT_COMMAND_DOCS}/kernelwright.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
# The installed face: the headers of include/kernelwright/, and whatever those include, directly or not.
file(GLOB face CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/kernelwright/*.h)
install(FILES ${face} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kernelwright)
set(unread ${face})
set(closure "")
while(unread)
  list(POP_FRONT unread file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})  # it may include others tomorrow
  file(STRINGS ${file} lines REGEX "^#include \"kernelwright/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"kernelwright/(.*)\".*" "\\1" header "${line}")
    if(NOT header IN_LIST closure)
      list(APPEND closure ${header})
      list(APPEND unread ${CMAKE_SOURCE_DIR}/${header})
    endif()
  endforeach()
endwhile()
foreach(header IN LISTS closure)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${CMAKE_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kernelwright/${folder})
endforeach()
# The Python module searches the folders above it for the library, so PYTHONPATH=<prefix>/<libdir>/kernelwright/python
# is enough.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/python/kernelwright DESTINATION ${CMAKE_INSTALL_LIBDIR}/kernelwright/python
        FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)

# The licences of the project and of the libraries that are linked or compiled in. The Python module carries its own
# copy.
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/THIRD_PARTY_NOTICES.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_LIBDIR}/kernelwright/python/kernelwright)

# pkg-config: kernelwright_c (the shared library) and kernelwright (C++, static). The files find their prefix from their
# own place, so a moved package still works. A portable build names libraries of the machine that built it.
if(NOT KERNELWRIGHT_PORTABLE)
  if(TARGET kernelwright::sodium)
    set(KERNELWRIGHT_PC_SODIUM " libsodium")
  endif()
  file(RELATIVE_PATH KERNELWRIGHT_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  foreach(name kernelwright kernelwright_c)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${CMAKE_BINARY_DIR}/package/${name}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/package/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endforeach()
endif()

set(KERNELWRIGHT_PACKAGE_DEPENDENCIES "find_dependency(Threads)\nfind_dependency(fmt)\n")
if(NOT KERNELWRIGHT_PORTABLE)  # a portable archive names these as static libraries, by file
  string(APPEND KERNELWRIGHT_PACKAGE_DEPENDENCIES
         "include(\${CMAKE_CURRENT_LIST_DIR}/KernelwrightZstd.cmake)\n")
endif()
if(TARGET kernelwright::sodium)
  string(APPEND KERNELWRIGHT_PACKAGE_DEPENDENCIES
         "set(KERNELWRIGHT_SODIUM_NAME ${KERNELWRIGHT_SODIUM_NAME})\n"
         "include(\${CMAKE_CURRENT_LIST_DIR}/KernelwrightSodium.cmake)\n")
endif()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/kernelwrightConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/package/kernelwrightConfig.cmake
                              INSTALL_DESTINATION ${KERNELWRIGHT_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/kernelwrightConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/kernelwrightConfig.cmake ${CMAKE_BINARY_DIR}/package/kernelwrightConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/KernelwrightZstd.cmake ${CMAKE_CURRENT_LIST_DIR}/KernelwrightSodium.cmake
        DESTINATION ${KERNELWRIGHT_PACKAGE_DIR})
install(EXPORT kernelwright NAMESPACE kernelwright:: FILE kernelwrightTargets.cmake DESTINATION ${KERNELWRIGHT_PACKAGE_DIR})
