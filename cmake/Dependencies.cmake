# SPDX-License-Identifier: Apache-2.0
# Everything that comes from outside, found once. Debian packages are named in
# scripts/deps.sh; what PyPI delivers lies in REN_DEPS_DIR.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Protobuf REQUIRED)
find_package(JPEG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SPNG REQUIRED IMPORTED_TARGET spng)
pkg_check_modules(LIBZIP REQUIRED IMPORTED_TARGET libzip)
find_package(CLI11 REQUIRED)
if(REN_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
if(REN_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

set(DNNL_ROOT ${REN_DEPS_DIR}/onednn)
find_package(dnnl 3 CONFIG QUIET PATHS ${DNNL_ROOT} NO_DEFAULT_PATH)
if(NOT TARGET DNNL::dnnl)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp PATHS ${DNNL_ROOT}/include NO_DEFAULT_PATH REQUIRED)
  find_library(DNNL_LIBRARY NAMES libdnnl.so.3 PATHS ${DNNL_ROOT}/lib NO_DEFAULT_PATH REQUIRED)
  add_library(DNNL::dnnl SHARED IMPORTED GLOBAL)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()

set(ONNX_PROTO ${REN_DEPS_DIR}/onnx/onnx.proto)
if(NOT EXISTS ${ONNX_PROTO})
  message(FATAL_ERROR "${ONNX_PROTO} is missing: run scripts/deps.sh first")
endif()

if(REN_CUDA)
  if(EXISTS ${REN_DEPS_DIR}/cuda/include/cuda_runtime_api.h)
    # What scripts/deps.sh --cuda fetched where there is no toolkit; CMake knows none without nvcc.
    set(CUDAToolkit_INCLUDE_DIRS ${REN_DEPS_DIR}/cuda/include)
    set(CUDAToolkit_LIBRARY_DIR ${REN_DEPS_DIR}/cuda/lib64)
    foreach(name cudart nvrtc cublasLt)
      add_library(CUDA::${name} SHARED IMPORTED GLOBAL)
      set_target_properties(CUDA::${name} PROPERTIES IMPORTED_LOCATION ${CUDAToolkit_LIBRARY_DIR}/lib${name}.so
                            INTERFACE_INCLUDE_DIRECTORIES ${CUDAToolkit_INCLUDE_DIRS})
    endforeach()
    # NVRTC opens this one by its name alone, which finds it only where it is loaded already.
    file(GLOB nvrtc_builtins ${CUDAToolkit_LIBRARY_DIR}/libnvrtc-builtins.so.*)
    set_target_properties(CUDA::nvrtc PROPERTIES INTERFACE_LINK_LIBRARIES
                          "-Wl,--push-state,--no-as-needed;${nvrtc_builtins};-Wl,--pop-state")
  else()
    find_package(CUDAToolkit REQUIRED)
  endif()
endif()
