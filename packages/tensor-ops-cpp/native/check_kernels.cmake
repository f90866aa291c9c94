# Fails the build when the object of a kernel pass holds what could run on a CPU below its level: a static
# constructor, or a symbol that the linker may merge with one of the same name compiled for another level.
# cmake -DNM=... -DOBJECTS=a.o,b.o -P check_kernels.cmake
string(REPLACE "," ";" objects "${OBJECTS}")
foreach(object IN LISTS objects)
  execute_process(COMMAND "${NM}" --defined-only "${object}" OUTPUT_VARIABLE symbols
                  COMMAND_ERROR_IS_FATAL ANY)
  if(symbols MATCHES "[^\n]* [uvVwW] [^\n]*" OR symbols MATCHES "[^\n]*_GLOBAL__sub_I[^\n]*")
    message(FATAL_ERROR "${object} holds ${CMAKE_MATCH_0}")
  endif()
endforeach()
