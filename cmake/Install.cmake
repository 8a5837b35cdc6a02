# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: the header, the library, the program, oneDNN in a
# folder of its own below the library's, a package for find_package(Renaissance) and a
# pkg-config file. The tree may be moved afterwards: every path in it is relative.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET renaissance)
  set(ren_private_dir ${CMAKE_INSTALL_LIBDIR}/renaissance)
  get_target_property(ren_dnnl DNNL::dnnl IMPORTED_LOCATION)
  if(NOT ren_dnnl)
    get_target_property(ren_dnnl DNNL::dnnl IMPORTED_LOCATION_RELEASE)
  endif()
  set_target_properties(renaissance PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/renaissance")

  install(TARGETS renaissance EXPORT RenaissanceTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/include/renaissance_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/renaissance)
  # only a oneDNN that came from PyPI travels along; the distribution's stays where it is
  cmake_path(IS_PREFIX REN_DEPS_DIR "${ren_dnnl}" NORMALIZE ren_ship_dnnl)
  if(ren_ship_dnnl)
    install(PROGRAMS ${ren_dnnl} DESTINATION ${ren_private_dir} RENAME libdnnl.so.3)
    install(FILES ${REN_DEPS_DIR}/onednn/share/doc/onednn/LICENSE
                  ${REN_DEPS_DIR}/onednn/share/doc/onednn/THIRD-PARTY-PROGRAMS
            DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/renaissance/onednn)
  endif()
  if(TARGET ren_cuda)
    # CUDA's libraries stay where they were found, which is no place that the loader looks in where they are PyPI's
    set_target_properties(ren_cuda PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/renaissance;${CUDAToolkit_LIBRARY_DIR}")
    install(TARGETS ren_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
  if(TARGET renaissance_cli)
    file(RELATIVE_PATH to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(renaissance_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
    install(TARGETS renaissance_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Renaissance)
  install(EXPORT RenaissanceTargets NAMESPACE Renaissance:: DESTINATION ${package_dir})
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/RenaissanceConfig.cmake.in
                                ${CMAKE_BINARY_DIR}/RenaissanceConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/RenaissanceConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/RenaissanceConfig.cmake ${CMAKE_BINARY_DIR}/RenaissanceConfigVersion.cmake
          DESTINATION ${package_dir})

  set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH pkgconfig_to_prefix /${pkgconfig_dir} /)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/renaissance.pc.in ${CMAKE_BINARY_DIR}/renaissance.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/renaissance.pc DESTINATION ${pkgconfig_dir})
endif()
