# What Doxygen 1.9 does not know: `namespace a::inline b`, and `explicit(condition)`, in front of its
# constructor or on the line before.
s/bide::inline BIDE_ABI/bide/
s/explicit(.*) result(/explicit result(/
s/explicit(.*)$/explicit/
# What is not public has no page. Where it defines a function of a class in a folder `detail`, Doxygen would
# look for that class.
/^namespace detail {$/,/^} \/\/ namespace detail$/ s/.*//
# The guide is pages here, and programs in the sources.
s|](../../tests/examples/README.md)|](@ref guide)|
