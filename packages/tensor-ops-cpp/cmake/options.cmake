# Options, from the command line (-DTENSOR_OPS_DECODE=OFF, or with pip
# -C cmake.define.TENSOR_OPS_DECODE=OFF) or in config.cmake. The README lists it.

include(${shared}/cmake/config_file.cmake)
set(TENSOR_OPS_CONFIG_CMAKE "" CACHE FILEPATH "The file that says what to compile, config.cmake by default")

# A surrounding project decides by itself what the names mean for it.
if(NOT PROJECT_IS_TOP_LEVEL)
  foreach(switch IN LISTS backend_switches)
    set(${switch} "")
  endforeach()
endif()
set(config_file "${TENSOR_OPS_CONFIG_CMAKE}")
if(NOT config_file AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/config.cmake)
  set(config_file ${CMAKE_CURRENT_SOURCE_DIR}/config.cmake)
endif()
if(config_file)
  read_config_file("${config_file}" TENSOR_OPS_DECODE TENSOR_OPS_EMULATE_DOTS TENSOR_OPS_EMULATE_TILES
                   TENSOR_OPS_INSTALL TENSOR_OPS_LEVELS TENSOR_OPS_ONE_LEVEL TENSOR_OPS_PYTHON TENSOR_OPS_SANITIZE TENSOR_OPS_WERROR)
endif()

set(wanted_by_pip OFF)
if(SKBUILD AND PROJECT_IS_TOP_LEVEL)
  set(wanted_by_pip ON)
endif()
option(TENSOR_OPS_PYTHON "Compile the Python module too, as pip does" ${wanted_by_pip})
option(TENSOR_OPS_INSTALL "Install the library, the headers and the CMake files" ${PROJECT_IS_TOP_LEVEL})
set(TENSOR_OPS_LEVELS "" CACHE STRING
    "Instruction-set levels to compile for, e.g. x86-64-v2;x86-64-v3, or native, recent or runnable; all by default")
option(TENSOR_OPS_ONE_LEVEL "Compile for the lowest instruction set only: quick to build, slow to run" OFF)
option(TENSOR_OPS_DECODE "Compile what runs decode programs, which is most of the library" ON)
option(TENSOR_OPS_WERROR "Treat warnings as errors" OFF)
option(TENSOR_OPS_EMULATE_DOTS "Do what AVX-VNNI does in plain C++: slow, for tests on other processors" OFF)
option(TENSOR_OPS_EMULATE_TILES "Do what AMX does in plain C++: slow, for tests on other processors" OFF)
set(TENSOR_OPS_SANITIZE "" CACHE STRING "What -fsanitize= is to check, e.g. address,undefined")

require_switches(${backend_switches} TENSOR_OPS_DECODE TENSOR_OPS_EMULATE_DOTS TENSOR_OPS_EMULATE_TILES
                 TENSOR_OPS_INSTALL TENSOR_OPS_ONE_LEVEL TENSOR_OPS_PYTHON TENSOR_OPS_WERROR)

if(DEFINED USE_CPU AND NOT USE_CPU STREQUAL "" AND NOT USE_CPU)
  message(FATAL_ERROR "USE_CPU is '${USE_CPU}', and the CPU backend is all that tensor-ops-cpp is. Set it to ON, or do not "
                      "build or install this package.")
endif()
# A wheel has one backend; a build without Python may have both.
set(cuda_package ${CMAKE_CURRENT_SOURCE_DIR}/../tensor-ops-cuda)
if(USE_CUDA AND NOT TENSOR_OPS_PYTHON AND EXISTS ${cuda_package}/CMakeLists.txt)
  add_subdirectory(${cuda_package} tensor_ops_cuda)
elseif(USE_CUDA)
  message(WARNING "USE_CUDA is ON, and the CUDA backend is a package of its own, which is built by itself: "
                  "pip install ./packages/tensor-ops-cuda")
endif()
answer_about_other_backends()
