# What the kernels are compiled for: `levels`, and `product_variants` of the decode executor, with the
# compiler's flags_... for each, and `level_definitions`, from which native/isa/levels.h knows them.

# macOS builds for another processor than its own by this list.
set(processor ${CMAKE_SYSTEM_PROCESSOR})
if(APPLE AND CMAKE_OSX_ARCHITECTURES)
  set(processor ${CMAKE_OSX_ARCHITECTURES})
  list(LENGTH CMAKE_OSX_ARCHITECTURES architectures)
  if(architectures GREATER 1)
    message(FATAL_ERROR "tensor-ops-cpp is built for one architecture at a time, not for "
                        "${CMAKE_OSX_ARCHITECTURES}: set ARCHFLAGS to '-arch arm64' or '-arch x86_64'.")
  endif()
endif()

# The list of native/isa/levels.h, lowest first, with the flags of each level.
if(processor MATCHES "^(x86_64|AMD64|amd64)$")
  set(all_levels x86_64_v2 x86_64_v3 x86_64_v4)
  set(level_names x86-64-v2 x86-64-v3 x86-64-v4)
  set(flags_x86_64_v2 -march=x86-64-v2)
  set(flags_x86_64_v3 -march=x86-64-v3)
  set(flags_x86_64_v4 -march=x86-64-v4 -mprefer-vector-width=512)
elseif(processor MATCHES "^(aarch64|arm64|ARM64)$")
  set(all_levels neon)
  set(level_names neon)
else()
  set(all_levels generic)
  set(level_names generic)
endif()

set(asked_levels ${level_names})
if(TENSOR_OPS_ONE_LEVEL AND TENSOR_OPS_LEVELS)
  message(FATAL_ERROR "TENSOR_OPS_ONE_LEVEL is ON and TENSOR_OPS_LEVELS is '${TENSOR_OPS_LEVELS}': set one of them. "
                      "The first stands for the lowest level.")
elseif(TENSOR_OPS_ONE_LEVEL)
  list(GET level_names 0 asked_levels)
elseif(TENSOR_OPS_LEVELS MATCHES "^(native|runnable)$")
  # What isa.cpp finds where the library runs, asked for where it is built.
  try_run(run_result is_compiled ${CMAKE_CURRENT_BINARY_DIR}/machine_levels
          ${CMAKE_CURRENT_SOURCE_DIR}/cmake/machine_levels.cpp
          CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${CMAKE_CURRENT_SOURCE_DIR}/native;${shared}"
          CXX_STANDARD 17 RUN_OUTPUT_VARIABLE asked_levels)
  string(REGEX REPLACE ";$" "" asked_levels "${asked_levels}")
  if(NOT is_compiled OR NOT run_result EQUAL 0 OR NOT asked_levels)
    message(FATAL_ERROR "TENSOR_OPS_LEVELS is '${TENSOR_OPS_LEVELS}', and this machine does not run what is built for "
                        "${processor} processors. Set it to a list of: ${level_names}")
  endif()
  if(TENSOR_OPS_LEVELS STREQUAL "native")
    list(GET asked_levels -1 asked_levels)
  endif()
elseif(TENSOR_OPS_LEVELS)
  string(REGEX REPLACE "[ ,]+" ";" asked_levels "${TENSOR_OPS_LEVELS}")
endif()
list(JOIN level_names ", " valid_levels)
foreach(name IN LISTS asked_levels)
  if(NOT name IN_LIST level_names)
    message(FATAL_ERROR "TENSOR_OPS_LEVELS is '${TENSOR_OPS_LEVELS}', and '${name}' is not a level of ${processor} "
                        "processors; the valid ones are: ${valid_levels}; or native or runnable, alone")
  endif()
endforeach()
set(levels "")
set(compiled_level_names "")
set(level_definitions "")
foreach(level name IN ZIP_LISTS all_levels level_names)
  if(name IN_LIST asked_levels)
    list(APPEND levels ${level})
    list(APPEND compiled_level_names ${name})
  else()
    list(APPEND level_definitions TENSOR_OPS_WITHOUT_${level})
  endif()
endforeach()

# The products of the decode executor again: native/decode/products/variants.h. A variant that has
# formats_ is compiled for these only.
set(product_variants ${levels})
if(TENSOR_OPS_ONE_LEVEL)
  # The quickest build leaves them out where they would extend its only level, too.
  list(APPEND level_definitions TENSOR_OPS_WITHOUT_neon_dotprod)
elseif(x86_64_v4 IN_LIST levels)
  list(APPEND product_variants x86_64_v4_vnni x86_64_v4_bf16 x86_64_v4_amx)
  set(flags_x86_64_v4_vnni ${flags_x86_64_v4} -mavx512vnni)
  set(flags_x86_64_v4_bf16 ${flags_x86_64_v4_vnni} -mavx512bf16)
  set(formats_x86_64_v4_bf16 native/decode/products/formats/bf16.cpp)
  set(flags_x86_64_v4_amx ${flags_x86_64_v4_vnni} -mamx-tile -mamx-int8 -DTENSOR_OPS_TILES)
  file(GLOB formats_x86_64_v4_amx CONFIGURE_DEPENDS native/decode/products/formats/q*.cpp)
elseif(neon IN_LIST levels)
  list(APPEND product_variants neon_dotprod neon_i8mm neon_bf16)
  set(flags_neon_dotprod -march=armv8.2-a+dotprod)
  set(flags_neon_i8mm ${flags_neon_dotprod}+i8mm -DTENSOR_OPS_MATRIX_INT8)
  file(GLOB formats_neon_i8mm CONFIGURE_DEPENDS native/decode/products/formats/q*.cpp)
  set(flags_neon_bf16 ${flags_neon_dotprod}+i8mm+bf16)
  set(formats_neon_bf16 native/decode/products/formats/bf16.cpp)
endif()
