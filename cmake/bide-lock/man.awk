# Makes the man page: bide-lock --help | awk -f man.awk > bide-lock.1
#
# A line without indentation that ends with a colon begins a section. A line with little indentation
# is a term, with its text behind two spaces or more. Deeper lines continue the text.

function plain(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}
BEGIN {
    print ".TH BIDE-LOCK 1"
    print ".SH NAME\nbide-lock \\- run a command while it holds a lock that machines can share"
    print ".SH SYNOPSIS\n.nf"
    in_usage = 1
}
in_usage && /^(usage:|   )/ { sub(/^usage:|^ +/, ""); sub(/^ +/, ""); print plain($0); next }
in_usage { in_usage = 0; print ".fi\n.SH DESCRIPTION" }
/^$/ { print ".PP"; next }
/^[^ ]/ && is_in_term { is_in_term = 0; print ".PP" }
/^[^ ].*:$/ && length($0) < 60 { sub(/:$/, ""); print ".SH " plain(toupper($0)); next }
match($0, /[^ ]/) > 1 && RSTART < 20 {
    is_in_term = sub(/^ +/, "")
    at = match($0, /   */)
    print ".TP\n.B " plain(at ? substr($0, 1, at - 1) : $0)
    if (at) print plain(substr($0, at + RLENGTH))
    next
}
{ sub(/^ +/, ""); print plain($0) }
