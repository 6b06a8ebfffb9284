# Peers that are written in Rust (peers/rust), each a package of its own with one program. They are
# built offline, from the crates that are installed on the machine.

set(
    BIDE_BENCH_CRATES /usr/share/cargo/registry
    CACHE PATH "Rust crates for peers: Debian's librust-...-dev, or what `cargo vendor` made"
)
find_program(BIDE_BENCH_CARGO cargo)
mark_as_advanced(BIDE_BENCH_CARGO)

# bide_bench_rust_peer(TARGET PACKAGE CRATE DEFINITION): the target, where cargo and the crate are
# installed. A target that links to it finds the path of the package's program in the definition.
function(bide_bench_rust_peer target package crate definition)
    file(
        GLOB installed
        "${BIDE_BENCH_CRATES}/${crate}/Cargo.toml"
        "${BIDE_BENCH_CRATES}/${crate}-[0-9]*/Cargo.toml"
    )
    if(NOT BIDE_BENCH_CARGO OR NOT installed)
        return()
    endif()
    set(sources ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/rust)
    # Cargo writes its lock file next to the sources, and looks for its configuration above them:
    # it gets a copy.
    set(copy ${CMAKE_CURRENT_BINARY_DIR}/peers/${package})
    file(MAKE_DIRECTORY ${copy}/${package}) # where cargo is to run
    file(
        CONFIGURE
        OUTPUT ${copy}/.cargo/config.toml
        CONTENT "[source.crates-io]\nreplace-with = \"installed\"\n
[source.installed]\ndirectory = \"${BIDE_BENCH_CRATES}\"\n"
    )
    file(
        GLOB_RECURSE files CONFIGURE_DEPENDS
        ${sources}/${package}/*.toml ${sources}/${package}/*.rs
    )
    set(program ${copy}/target/release/${package}_bench)
    add_custom_command(
        OUTPUT ${program}
        COMMAND ${CMAKE_COMMAND} -E copy_directory ${sources}/${package} ${copy}/${package}
        COMMAND ${CMAKE_COMMAND} -E copy ${sources}/build.rs ${copy}/build.rs
        # Of other crates, perhaps.
        COMMAND ${CMAKE_COMMAND} -E rm -f ${copy}/${package}/Cargo.lock
        COMMAND
            ${BIDE_BENCH_CARGO} build --quiet --release --offline --target-dir ${copy}/target
        COMMAND ${CMAKE_COMMAND} -E touch ${program}
        DEPENDS ${files} ${sources}/build.rs ${installed} ${copy}/.cargo/config.toml
        WORKING_DIRECTORY ${copy}/${package}
        COMMENT "Building ${package}'s benchmark with cargo"
        VERBATIM
    )
    add_custom_target(${target}_program DEPENDS ${program})
    add_library(${target} INTERFACE)
    add_dependencies(${target} ${target}_program)
    target_compile_definitions(${target} INTERFACE "${definition}=\"${program}\"")
endfunction()

bide_bench_rust_peer(bench_crossbeam crossbeam_channel crossbeam-channel BIDE_BENCH_CROSSBEAM)
bide_bench_rust_peer(bench_tokio tokio tokio BIDE_BENCH_TOKIO)
bide_bench_rust_peer(bench_rayon rayon rayon BIDE_BENCH_RAYON)
