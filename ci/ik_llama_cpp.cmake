# The sdist of ik-llama-cpp-python 0.1.5 lacks the script that its build runs for the names of its version, compiler and
# machine. Included by its project() command, this writes one that leaves them out.
set(script ${CMAKE_SOURCE_DIR}/vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake)
if(NOT EXISTS ${script})
  file(WRITE ${script} "set(BUILD_NUMBER 0)\nconfigure_file(common/build-info.cpp.in common/build-info.cpp @ONLY)\n")
endif()
