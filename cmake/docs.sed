# Pages name no inline namespace.
s/^namespace bide { inline namespace BIDE_ABI {/namespace bide {/
s/^}\(}*\) \/\/ namespace bide::BIDE_ABI/\1 \/\/ namespace bide/
# What Doxygen 1.9 does not know: `explicit(condition)`, in front of its constructor or on the line before.
s/explicit(.*) result(/explicit result(/
s/explicit(.*)$/explicit/
# What is not public has no page. Where it defines a function of a class in a folder `detail`, Doxygen would
# look for that class.
/^namespace detail {$/,/^} \/\/ namespace detail$/ s/.*//
/^namespace bide { namespace .*detail {$/,/^}} \/\/ namespace bide::.*detail$/ s/.*//
# Doxygen takes the next class for a part of what is instantiated.
s/^BIDE_COMPILED_TEMPLATE(.*)$//
/^BIDE_COMPILED_TEMPLATE(/,/)$/ s/.*//
# Doxygen links declarations of friends, and does not show them. An operator that is one is shown as a member.
/^ *template <[^{}]*>$/ {
    N
    s/^.*\n *friend [^{]*;$//
}
/friend .*operator/! s/^ *\(template <[^{}]*> \)*friend [^{]*;$//
s/friend \(.*operator.*\) = default;$/\1; \/\/\/< Compares all members./
s/friend \(.*operator\)/\1/
# Where a class is defined, it says what it is.
/^\/\/\/ \(See .*[.]hpp[.]\|\\overload\)$/ {
    N
    s/^.*\n\(.*\(class\|struct\) [a-z_]*;\)$/\1/
}
