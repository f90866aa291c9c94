# The extension module, a client of the library that lies beside it. What uses pybind11 is large, and a call
# of an op runs through little of it.
file(GLOB call_files CONFIGURE_DEPENDS ${shared}/binding/*.cpp native/arrays/*.cpp native/python/*.cpp)
set(pybind11_files ${call_files})
list(FILTER pybind11_files INCLUDE REGEX "/binding/module.cpp$|/python/(module|decode[^/]*).cpp$")
list(REMOVE_ITEM call_files ${pybind11_files})
if(NOT TENSOR_OPS_DECODE)
  list(FILTER pybind11_files EXCLUDE REGEX "/python/decode[^/]*$")
endif()
add_library(tensor_ops_cpp_calls OBJECT ${call_files})
target_link_libraries(tensor_ops_cpp_calls PRIVATE tensor_ops_cpp Python::Module Python::NumPy)
pybind11_add_module(_native MODULE NO_EXTRAS ${pybind11_files})
target_link_libraries(_native PRIVATE tensor_ops_cpp_calls tensor_ops_cpp Python::NumPy Threads::Threads)
target_compile_definitions(_native PRIVATE TENSOR_OPS_VERSION="${PROJECT_VERSION}")
if(NOT TENSOR_OPS_SANITIZE)
  target_compile_options(_native PRIVATE $<$<CONFIG:Release>:-Os>)
endif()
set_target_properties(_native PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
if(APPLE)
  set_target_properties(_native PROPERTIES INSTALL_RPATH "@loader_path")
else()
  set_target_properties(_native PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # Else the standard library's templates are exported, and could be swapped for another module's.
  target_link_options(_native PRIVATE
                      "LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/native/exports.map"
                      # The library beside it goes before one of LD_LIBRARY_PATH.
                      "LINKER:--disable-new-dtags")
endif()

install(TARGETS _native LIBRARY DESTINATION tensor_ops_cpp)

# What else is compiled in, and what was chosen, for programs that look for either (PEP 770).
if(SKBUILD_METADATA_DIR AND PROJECT_IS_TOP_LEVEL)
  list(JOIN compiled_level_names "," configured_levels)
  set(configured_decode off)
  if(TENSOR_OPS_DECODE)
    set(configured_decode on)
  endif()
  configure_file(native/sbom.cdx.json.in sbom.cdx.json @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sbom.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
endif()
