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
# The guide is pages here, and programs in the sources.
s|](../../tests/examples/README.md)|](@ref guide)|
