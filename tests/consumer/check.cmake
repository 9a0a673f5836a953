# Installs the build tree below itself, then configures, builds and runs the consumer against that: what a user would do.
set(prefix ${BUILD}/consumer/prefix)
set(tree ${BUILD}/consumer/build)
file(REMOVE_RECURSE ${prefix} ${tree})
set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE}")
endif()

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nfailed with ${status}:\n${text}")
  endif()
endfunction()

step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
step(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${tree} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
     -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_CXX_FLAGS=${flags})
step(${CMAKE_COMMAND} --build ${tree})
step(${tree}/consumer)
foreach(file bin/kernelwright share/man/man1/kernelwright.1 share/bash-completion/completions/kernelwright
             share/zsh/site-functions/_kernelwright share/fish/vendor_completions.d/kernelwright.fish)
  if(NOT EXISTS ${prefix}/${file})
    message(FATAL_ERROR "${file} was not installed into ${prefix}")
  endif()
endforeach()
# The Python module finds the installed library by itself.
find_program(python NAMES python3)
if(python AND NOT SANITIZE)
  file(GLOB module ${prefix}/lib*/kernelwright/python ${prefix}/lib*/*/kernelwright/python)
  step(${CMAKE_COMMAND} -E env --unset=KERNELWRIGHT_LIBRARY PYTHONPATH=${module} ${python} -B -c
       "import kernelwright\nkernelwright.version()\nassert kernelwright._library.find().startswith('${prefix}')")
endif()
