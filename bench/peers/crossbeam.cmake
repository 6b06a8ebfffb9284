# The target bench_crossbeam, where cargo and the crates are installed: a program that measures
# crossbeam-channel (peers/rust), built offline. What links to it knows its path.

set(
    BIDE_BENCH_CRATES /usr/share/cargo/registry
    CACHE PATH "Rust crates for peers: Debian's librust-...-dev, or what `cargo vendor` made"
)
find_program(BIDE_BENCH_CARGO cargo)
mark_as_advanced(BIDE_BENCH_CARGO)
file(GLOB crossbeam "${BIDE_BENCH_CRATES}/crossbeam-channel*/Cargo.toml")

if(BIDE_BENCH_CARGO AND crossbeam)
    set(sources ${CMAKE_CURRENT_LIST_DIR}/rust)
    # Cargo writes its lock file next to the sources, and looks for its configuration above them:
    # it gets a copy.
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/peers/rust)
    file(
        CONFIGURE
        OUTPUT ${copy}/.cargo/config.toml
        CONTENT "[source.crates-io]\nreplace-with = \"installed\"\n
[source.installed]\ndirectory = \"${BIDE_BENCH_CRATES}\"\n"
    )
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${sources}/*.toml ${sources}/*.rs)
    set(crossbeam_program ${copy}/target/release/crossbeam_channel_bench)
    add_custom_command(
        OUTPUT ${crossbeam_program}
        COMMAND ${CMAKE_COMMAND} -E copy_directory ${sources} ${copy}
        COMMAND ${CMAKE_COMMAND} -E rm -f ${copy}/Cargo.lock # of other crates, perhaps
        COMMAND
            ${BIDE_BENCH_CARGO} build --quiet --release --offline --target-dir ${copy}/target
        COMMAND ${CMAKE_COMMAND} -E touch ${crossbeam_program}
        DEPENDS ${files} ${crossbeam} ${copy}/.cargo/config.toml
        WORKING_DIRECTORY ${copy}
        COMMENT "Building crossbeam-channel's benchmark with cargo"
        VERBATIM
    )
    add_custom_target(bench_crossbeam_program DEPENDS ${crossbeam_program})
    add_library(bench_crossbeam INTERFACE)
    add_dependencies(bench_crossbeam bench_crossbeam_program)
    target_compile_definitions(
        bench_crossbeam INTERFACE "BIDE_BENCH_CROSSBEAM=\"${crossbeam_program}\""
    )
endif()
