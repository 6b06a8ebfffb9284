# run(FOLDER COMMAND...): runs the command there; if it fails, so does the script, with what was printed.
function(run folder)
    execute_process(
        COMMAND ${ARGN}
        WORKING_DIRECTORY ${folder}
        RESULT_VARIABLE failed
        OUTPUT_VARIABLE said
        ERROR_VARIABLE said
    )
    if(failed)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}: ${failed}\n${said}")
    endif()
endfunction()
