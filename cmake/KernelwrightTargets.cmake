# kernelwright_include_root(<target> <folder>): lets <target>'s users write "kernelwright/<folder>/x.h" for this folder
# and for no other, through a link in the build tree. An include against the arrows of CONTRIBUTING.md finds no file.
function(kernelwright_include_root target folder)
  set(root ${CMAKE_BINARY_DIR}/include/${folder})
  file(MAKE_DIRECTORY ${root}/kernelwright)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${root}/kernelwright/${folder} SYMBOLIC)
  target_compile_features(${target} PUBLIC cxx_std_20)  # who links the installed package gets it by that
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${root}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()
