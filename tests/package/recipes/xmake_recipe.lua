-- Runs the recipe with stand-ins for what xmake gives it, and looks at what each configuration adds.
-- What xmake itself makes of it, this does not show.
--
-- lua xmake_recipe.lua xmake.lua

local recipe = {configs = {}}
local calls = {}

local function package_of(chosen)
    local added = {deps = {}, defines = {}}
    return {
        config = function (_, name)
            assert(recipe.configs[name], name .. " is no configuration")
            return chosen[name] or false
        end,
        add = function (_, what, value) added[what][value] = true end,
        added = added
    }
end

local environment = setmetatable({
    package = function (name) recipe.name = name end,
    add_configs = function (name, options)
        assert(options.type == "boolean" and options.default == false)
        recipe.configs[name] = true
    end,
    add_versions = function (version, hash) recipe.version, recipe.hash = version, hash end,
    is_plat = function (...) return true end
}, {__index = function (_, name)
    if _G[name] ~= nil then return _G[name] end
    return function (...) calls[name] = {...} end
end})
assert(loadfile(arg[1], "t", environment))()

assert(recipe.name == "bide")
assert(recipe.version:match("^%d+%.%d+%.%d+$"))
assert(#recipe.hash == 64)
assert(calls.add_urls[1]:find("bide-$(version).tar.gz", 1, true))
assert(calls.on_install and calls.on_test)

local function added(chosen, what)
    local package = package_of(chosen)
    calls.on_load[1](package)
    local names = {}
    for name in pairs(package.added[what]) do names[#names + 1] = name end
    table.sort(names)
    return table.concat(names, " ")
end
assert(added({}, "deps") == "")
assert(added({}, "defines") == "")
assert(added({durable = true}, "deps") == "")
assert(added({durable = true}, "defines") == "BIDE_DURABLE_HEADER_ONLY")
assert(added({sqlite = true, etcd = true}, "deps") == "libcurl sqlite3")
assert(added({redis = true}, "deps") == "hiredis libcurl")
assert(added({redis = true}, "defines") == "BIDE_DURABLE_HEADER_ONLY")
