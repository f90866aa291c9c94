# tensor_ops::backend: the headers with which a C++ program finds the backends and calls them. It is not linked
# with a library of ours: the registry loads those that it finds.
add_library(tensor_ops_backend INTERFACE)
add_library(tensor_ops::backend ALIAS tensor_ops_backend)
set_target_properties(tensor_ops_backend PROPERTIES EXPORT_NAME backend)
target_compile_features(tensor_ops_backend INTERFACE cxx_std_17)
target_include_directories(tensor_ops_backend INTERFACE $<BUILD_INTERFACE:${shared}/include>)
# A folder of this machine is none of another, which may even refuse its name.
if(NOT CMAKE_CROSSCOMPILING)
  target_compile_definitions(tensor_ops_backend
                             INTERFACE TENSOR_OPS_BACKEND_FOLDERS="$<TARGET_FILE_DIR:tensor_ops::cpp>")
endif()
target_link_libraries(tensor_ops_backend INTERFACE ${CMAKE_DL_LIBS})
# In a build of another project, the library is there before the program runs.
add_dependencies(tensor_ops_backend tensor_ops_cpp)
if(TARGET tensor_ops_cuda) # beside the other library, where the registry looks
  get_target_property(folder tensor_ops_cpp LIBRARY_OUTPUT_DIRECTORY)
  if(NOT folder)
    set(folder ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  set_target_properties(tensor_ops_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${folder})
  add_dependencies(tensor_ops_backend tensor_ops_cuda)
endif()
