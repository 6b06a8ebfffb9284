# A package that works wherever its files are moved: nothing in it names the place it was built in or
# installed to. Headers only, hence share/, which is the same for every architecture.
#
# In a project that does not install bide the rules stand all the same, so that it can export a target
# that links bide. They take effect with `cmake --install <build> --component bide` alone.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(bide_package_dir ${CMAKE_INSTALL_DATADIR}/cmake/bide)
set(bide_pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)
set(bide_component COMPONENT bide)
if(NOT BIDE_INSTALL)
    list(APPEND bide_component EXCLUDE_FROM_ALL)
endif()

install(TARGETS bide EXPORT bide INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(
    DIRECTORY include/bide
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    ${bide_component}
    FILES_MATCHING PATTERN *.hpp PATTERN *.inc PATTERN bide.cppm PATTERN execution PATTERN model/README.md
)
install(
    EXPORT bide
    NAMESPACE bide::
    FILE bideTargets.cmake
    DESTINATION ${bide_package_dir}
    ${bide_component}
)

configure_package_config_file(
    cmake/packaging/bideConfig.cmake.in
    ${PROJECT_BINARY_DIR}/packaging/bideConfig.cmake
    INSTALL_DESTINATION ${bide_package_dir}
    NO_SET_AND_CHECK_MACRO
)
# Before 1.0 a minor version may break what the one before promised.
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/packaging/bideConfigVersion.cmake
    COMPATIBILITY SameMinorVersion
    ARCH_INDEPENDENT
)

file(
    RELATIVE_PATH bide_pkgconfig_to_prefix
    ${CMAKE_INSTALL_PREFIX}/${bide_pkgconfig_dir} ${CMAKE_INSTALL_PREFIX}
)
set(bide_pkgconfig_libs -pthread)
if(WIN32)
    string(APPEND bide_pkgconfig_libs " -lsynchronization")
endif()
configure_file(cmake/packaging/bide.pc.in ${PROJECT_BINARY_DIR}/packaging/bide.pc @ONLY)

install(
    FILES
        cmake/packaging/bideCompiled.cmake
        cmake/packaging/bideDurable.cmake
        cmake/packaging/bideModel.cmake
        cmake/packaging/bideModule.cmake
        cmake/packaging/bideStdExecution.cmake
        cmake/packaging/bideUring.cmake
        ${PROJECT_BINARY_DIR}/packaging/bideConfig.cmake
        ${PROJECT_BINARY_DIR}/packaging/bideConfigVersion.cmake
    DESTINATION ${bide_package_dir}
    ${bide_component}
)
install(
    FILES ${PROJECT_BINARY_DIR}/packaging/bide.pc
    DESTINATION ${bide_pkgconfig_dir}
    ${bide_component}
)
install(FILES cmake/gdb/bide_gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/bide/gdb ${bide_component})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/bide ${bide_component})
