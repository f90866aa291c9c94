# config.cmake, the file in which users say what to compile, and the backends that they may name there.
#
#   include(config_file.cmake)
#   read_config_file("${file}" OPTION...)   # sets what the file sets, in the caller's scope
#   require_switches(OPTION...)             # stops at an option that is neither ON nor OFF
#   answer_about_other_backends()           # says for each USE_... that is ON what provides it
#
# The file has lines such as set(USE_CUDA ON) and set(TENSOR_OPS_DECODE OFF). A name that begins with
# USE_ or TENSOR_OPS_ and is unknown stops the configuration. Other variables stay in the file.

# Packages that provide a backend of which nothing can be compiled here.
set(backend_answer_OPENCL "tensor-ops-opencl, which is Python alone: pip install ./packages/tensor-ops-opencl")
set(backend_answer_TORCH "tensor-ops-torch, which is Python alone: pip install ./packages/tensor-ops-devices ./packages/tensor-ops-torch")
set(backend_answer_MPS "PyTorch, through tensor-ops-torch: pip install ./packages/tensor-ops-devices ./packages/tensor-ops-torch")
set(backend_answer_NKI "PyTorch, through tensor-ops-torch: pip install ./packages/tensor-ops-devices ./packages/tensor-ops-torch")
set(backend_answer_TPU "PyTorch/XLA, through tensor-ops-torch: pip install ./packages/tensor-ops-devices ./packages/tensor-ops-torch")
set(backend_answer_ROCM "OpenCL, through tensor-ops-opencl: pip install ./packages/tensor-ops-opencl")
set(backend_answer_TRITON "the cuda backend, which serves NVIDIA GPUs: pip install ./packages/tensor-ops-cuda")
set(backend_answer_CUDNN "the cuda backend, which serves NVIDIA GPUs: pip install ./packages/tensor-ops-cuda")
set(backend_answer_MKL "the cpp backend, which serves Intel CPUs: tensor-ops-cpp")
set(backend_answer_MKLDNN "the cpp backend, which serves Intel CPUs: tensor-ops-cpp")
set(backend_answer_OPENMP "the cpp backend, whose threads are its own: tensor-ops-cpp")
set(backends_elsewhere OPENCL TORCH MPS NKI TPU ROCM TRITON CUDNN MKL MKLDNN OPENMP)
set(backend_switches CPU CUDA ${backends_elsewhere})
list(TRANSFORM backend_switches PREPEND USE_)

# How many characters must be changed, added or removed to get from one name to the other.
function(edit_distance first second result)
  string(LENGTH "${first}" rows)
  string(LENGTH "${second}" columns)
  foreach(j RANGE ${columns})
    set(above_${j} ${j})
  endforeach()
  foreach(i RANGE 1 ${rows})
    set(diagonal ${above_0})
    set(above_0 ${i})
    math(EXPR at "${i} - 1")
    string(SUBSTRING "${first}" ${at} 1 character)
    foreach(j RANGE 1 ${columns})
      math(EXPR at "${j} - 1")
      string(SUBSTRING "${second}" ${at} 1 other)
      set(least ${diagonal})
      if(NOT character STREQUAL other)
        foreach(candidate IN ITEMS ${above_${at}} ${above_${j}})
          if(candidate LESS least)
            set(least ${candidate})
          endif()
        endforeach()
        math(EXPR least "${least} + 1")
      endif()
      set(diagonal ${above_${j}})
      set(above_${j} ${least})
    endforeach()
  endforeach()
  set(${result} ${above_${columns}} PARENT_SCOPE)
endfunction()

function(nearest_name name result)
  set(least 1000)
  foreach(candidate IN LISTS ARGN)
    edit_distance("${name}" "${candidate}" distance)
    if(distance LESS least)
      set(least ${distance})
      set(nearest ${candidate})
    endif()
  endforeach()
  set(${result} ${nearest} PARENT_SCOPE)
endfunction()

# Stops at a name that is none of those after it.
function(require_known_name name where)
  if(NOT name IN_LIST ARGN)
    nearest_name(${name} nearest ${ARGN})
    list(JOIN ARGN ", " names)
    message(FATAL_ERROR "${where} sets ${name}, which is unknown; did you mean ${nearest}? Valid names: ${names}")
  endif()
endfunction()

# Settings of the file go before those of the command line, and a difference is said.
function(read_config_file config_file)
  set(config_options ${ARGN})
  if(NOT EXISTS "${config_file}")
    message(FATAL_ERROR "TENSOR_OPS_CONFIG_CMAKE is '${config_file}', where there is no file: give the whole path of a "
                        "file with lines such as set(TENSOR_OPS_DECODE OFF)")
  endif()
  # A name of the surrounding project is not what the file sets.
  get_cmake_property(names VARIABLES)
  list(FILTER names INCLUDE REGEX "^(USE|TENSOR_OPS)_")
  foreach(name IN LISTS names)
    unset(${name})
  endforeach()
  get_cmake_property(cached CACHE_VARIABLES)
  include("${config_file}")
  get_cmake_property(names VARIABLES)
  list(FILTER names INCLUDE REGEX "^(USE|TENSOR_OPS)_")
  foreach(name IN LISTS names)
    # The file's variable hides the one of the same name in the cache.
    if(name IN_LIST cached AND "${${name}}" STREQUAL "$CACHE{${name}}")
      continue()
    endif()
    require_known_name(${name} "${config_file}" ${backend_switches} ${config_options})
    if(name IN_LIST cached)
      message(WARNING "${config_file} sets ${name} to '${${name}}', which goes before '$CACHE{${name}}' of the command "
                      "line or of an earlier configuration. Remove one of them.")
    endif()
    message(STATUS "${config_file} sets ${name} to '${${name}}'")
    set(${name} "${${name}}" PARENT_SCOPE)
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${config_file}")
endfunction()

# CMake takes every text that it does not know for ON.
function(require_switches)
  set(known ON OFF TRUE FALSE YES NO 1 0)
  list(JOIN known ", " valid)
  foreach(name IN LISTS ARGN)
    string(TOUPPER "${${name}}" value)
    if(NOT value STREQUAL "" AND NOT value IN_LIST known)
      message(FATAL_ERROR "${name} is '${${name}}'; set it to ON or OFF. Valid values: ${valid}")
    endif()
  endforeach()
endfunction()

# USE_CPU and USE_CUDA are the package's own to answer.
function(answer_about_other_backends)
  foreach(backend IN LISTS backends_elsewhere)
    if(USE_${backend})
      message(WARNING "USE_${backend} is ON, and there is nothing to compile for it here. What provides it is "
                      "${backend_answer_${backend}}")
    endif()
  endforeach()
endfunction()
