# The target `docs`: the reference, from the `///` comments of the public headers, the READMEs and the guide, in
# build/docs/html. It fails if a public symbol has no comment, at every warning, and if a link is dead.

find_package(Doxygen QUIET)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT (DOXYGEN_FOUND AND Python3_FOUND))
    add_custom_target(
        docs
        COMMAND ${CMAKE_COMMAND} -E echo "The target docs needs Doxygen and Python: apt-get install doxygen python3"
        COMMAND ${CMAKE_COMMAND} -E false
        VERBATIM
    )
    return()
endif()

set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/docs)
set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_SOURCE_DIR}/include)
set(DOXYGEN_STRIP_FROM_INC_PATH ${PROJECT_SOURCE_DIR}/include)
set(DOXYGEN_INCLUDE_PATH ${PROJECT_SOURCE_DIR}/include)
set(DOXYGEN_FILE_PATTERNS *.hpp *.md)
set(DOXYGEN_EXCLUDE_PATTERNS */detail/* */impl/*)
set(DOXYGEN_EXCLUDE_SYMBOLS bide::detail bide::detail::* bide::durable::detail bide::durable::detail::* bide::model::detail bide::model::detail::*
    bide::test::detail bide::test::detail::* *::awaiter *::cursor *::slot_of
    *::operation)
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE ${PROJECT_SOURCE_DIR}/README.md)
set(DOXYGEN_TOC_INCLUDE_HEADINGS 0) # no labels that nothing links to
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_EXTRACT_LOCAL_CLASSES NO)
set(DOXYGEN_HIDE_FRIEND_COMPOUNDS YES)
set(DOXYGEN_INLINE_INHERITED_MEMB YES) # a channel has the operations of its bases
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_EXPAND_ONLY_PREDEF YES)
set(DOXYGEN_EXPAND_AS_DEFINED BIDE_DETAIL_TAKES_ITERATORS)
set(DOXYGEN_FILTER_PATTERNS
    "*.hpp=sed -f ${CMAKE_CURRENT_LIST_DIR}/docs.sed"
    "*.md=${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/docs.py page"
)
set(DOXYGEN_PREDEFINED BIDE_INLINE= BIDE_NOINLINE= BIDE_MAY_ALIAS= "BIDE_THREAD_SAFETY(...)=" BIDE_EXCEPTIONS=1 __linux__)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_IF_UNDOCUMENTED YES)
set(DOXYGEN_WARN_NO_PARAMDOC NO)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
set(DOXYGEN_GENERATE_LATEX NO)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_SORT_MEMBER_DOCS NO)
set(guide ${PROJECT_BINARY_DIR}/docs/guide)
file(MAKE_DIRECTORY ${guide})
add_custom_target(
    guide
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${DOXYGEN_OUTPUT_DIRECTORY}/html # with pages of what is no more
    COMMAND ${CMAKE_COMMAND} -DOUT=${guide} -P ${CMAKE_CURRENT_LIST_DIR}/guide.cmake
    VERBATIM
)

# The look: a side bar with all pages. With the theme of the package doxygen-awesome-css, where it is installed,
# the pages are also dark where the browser asks for it, and fit a telephone.
set(DOXYGEN_GENERATE_TREEVIEW YES)
set(DOXYGEN_LAYOUT_FILE ${CMAKE_CURRENT_LIST_DIR}/docs_layout.xml)
find_path(bide_docs_theme doxygen-awesome.css PATHS /usr/share/doxygen-awesome-css NO_DEFAULT_PATH)
mark_as_advanced(bide_docs_theme)
if(bide_docs_theme)
    set(DOXYGEN_HTML_EXTRA_STYLESHEET
        ${bide_docs_theme}/doxygen-awesome.css ${bide_docs_theme}/doxygen-awesome-sidebar-only.css
        ${CMAKE_CURRENT_LIST_DIR}/docs.css
    )
    if(DOXYGEN_VERSION VERSION_GREATER_EQUAL 1.9.5)
        set(DOXYGEN_HTML_COLORSTYLE LIGHT) # which the theme makes dark
    endif()
endif()
file(GLOB DOXYGEN_HTML_EXTRA_FILES ${PROJECT_SOURCE_DIR}/bench/charts/*.svg)
list(APPEND DOXYGEN_HTML_EXTRA_FILES ${PROJECT_SOURCE_DIR}/.github/one_queue.svg)

set(pages README.md bench/README.md tests/README.md tests/model/README.md .github/CHANGELOG.md .github/VERSIONS.md
    cmake/packaging/README.md)
list(TRANSFORM pages PREPEND ${PROJECT_SOURCE_DIR}/)
doxygen_add_docs(docs ${pages} ${PROJECT_SOURCE_DIR}/include/bide ${guide} COMMENT "The reference: docs/html")
add_dependencies(docs guide)
add_custom_command(
    TARGET docs
    POST_BUILD
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/docs.py finish ${DOXYGEN_OUTPUT_DIRECTORY}/html
    VERBATIM
)
