# Fails if an unwind table of FILE describes no instruction. A linker may keep it and drop the table of the function at the
# same address. An exception that leaves that function would then end the process.
execute_process(COMMAND ${READELF} --wide --debug-dump=frames ${FILE} OUTPUT_VARIABLE text ERROR_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "pc=[0-9a-f]+\\.\\.[0-9a-f]+" ranges "${text}")
list(LENGTH ranges count)
if(count LESS 1000)
  message(FATAL_ERROR "${FILE} has ${count} unwind tables: ${READELF} was not understood")
endif()
foreach(range IN LISTS ranges)
  string(REGEX MATCH "pc=([0-9a-f]+)\\.\\.([0-9a-f]+)" unused "${range}")
  if(CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
    message(FATAL_ERROR "${FILE} has an empty unwind table at ${CMAKE_MATCH_1}")
  endif()
endforeach()
