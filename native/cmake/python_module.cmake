# _native, the extension module of a package: a client of the library that lies beside it. The package has set
#
#   library           the target of the library, and the folder of both in the wheel
#   module_settings   what else the module is linked with
set(PYBIND11_FINDPYTHON ON)
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module NumPy)
find_package(pybind11 CONFIG REQUIRED)

# Code that uses pybind11 is large, and a call of an op runs through little of it.
file(GLOB call_files CONFIGURE_DEPENDS ${shared}/binding/ops/*.cpp ${shared}/binding/python/*.cpp native/arrays/*.cpp
                                       native/python/*.cpp)
set(pybind11_files ${call_files})
list(FILTER pybind11_files INCLUDE REGEX "/binding/ops/module.cpp$|/python/(module|device_array|decode[^/]*).cpp$")
list(REMOVE_ITEM call_files ${pybind11_files})
if(TENSOR_OPS_DECODE)
  file(GLOB decode_binding_files CONFIGURE_DEPENDS ${shared}/binding/decode/*.cpp)
  list(APPEND pybind11_files ${decode_binding_files})
else()
  list(FILTER pybind11_files EXCLUDE REGEX "/python/decode[^/]*$")
endif()
add_library(${library}_calls OBJECT ${call_files})
target_link_libraries(${library}_calls PRIVATE ${library} ${module_settings} Python::Module Python::NumPy)
pybind11_add_module(_native MODULE NO_EXTRAS ${pybind11_files})
target_link_libraries(_native PRIVATE ${library}_calls ${library} ${module_settings} Python::NumPy)
target_compile_definitions(_native PRIVATE TENSOR_OPS_VERSION="${PROJECT_VERSION}")
if(NOT TENSOR_OPS_SANITIZE AND NOT TENSOR_OPS_CUDA_EMULATION)
  target_compile_options(_native PRIVATE $<$<CONFIG:Release>:-Os>)
endif()
set(beside_it "$ORIGIN")
if(APPLE)
  set(beside_it "@loader_path")
endif()
set_target_properties(_native PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${beside_it}")
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # Else the standard library's templates are exported, and could be swapped for another module's.
  set(exports ${shared}/cmake/python_module.map)
  target_link_options(_native PRIVATE "LINKER:--version-script=${exports}"
                                      # The library beside it goes before one of LD_LIBRARY_PATH.
                                      "LINKER:--disable-new-dtags")
  set_target_properties(_native PROPERTIES LINK_DEPENDS ${exports})
endif()
install(TARGETS _native LIBRARY DESTINATION ${library})

# SBOM of what else is compiled in, and of what was chosen (PEP 770).
if(SKBUILD_METADATA_DIR AND PROJECT_IS_TOP_LEVEL AND NOT TENSOR_OPS_CUDA_EMULATION)
  configure_file(native/sbom.cdx.json.in sbom.cdx.json @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sbom.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
endif()
