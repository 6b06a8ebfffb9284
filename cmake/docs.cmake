# The target `docs`: the reference, from the `///` comments of the public headers, and the guide, in
# build/docs/html. It fails if a public symbol has no comment, and at every warning.

find_package(Doxygen QUIET)
if(NOT DOXYGEN_FOUND)
    add_custom_target(
        docs
        COMMAND ${CMAKE_COMMAND} -E echo "The target docs needs Doxygen: apt-get install doxygen"
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
set(DOXYGEN_USE_MDFILE_AS_MAINPAGE ${PROJECT_SOURCE_DIR}/include/bide/README.md)
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_EXTRACT_LOCAL_CLASSES NO)
set(DOXYGEN_HIDE_FRIEND_COMPOUNDS YES)
set(DOXYGEN_INLINE_INHERITED_MEMB YES) # a channel has the operations of its bases
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_EXPAND_ONLY_PREDEF YES)
set(DOXYGEN_EXPAND_AS_DEFINED BIDE_DETAIL_TAKES_ITERATORS)
set(DOXYGEN_INPUT_FILTER "sed -f ${CMAKE_CURRENT_LIST_DIR}/docs.sed")
set(DOXYGEN_PREDEFINED BIDE_INLINE= BIDE_NOINLINE= BIDE_MAY_ALIAS= BIDE_EXCEPTIONS=1 __linux__)
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
    COMMAND ${CMAKE_COMMAND} -DOUT=${guide} -P ${CMAKE_CURRENT_LIST_DIR}/guide.cmake
    VERBATIM
)
doxygen_add_docs(docs ${PROJECT_SOURCE_DIR}/include/bide ${guide} COMMENT "The reference: docs/html")
add_dependencies(docs guide)
