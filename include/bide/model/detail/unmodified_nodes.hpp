// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_UNMODIFIED_NODES_HPP
#define BIDE_MODEL_DETAIL_UNMODIFIED_NODES_HPP

// The functions of libstdc++.so that link the nodes of std::list, std::map and std::set. That
// library was compiled without -fsanitize=thread. The functions here have their names. In a body,
// they call those of the library, and tell the checker which links were read and written.

#include <bide/model/detail/unmodified_calls.hpp>
#include <bide/model/impl/heap.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// Has the layout of std::__detail::_List_node_base.
struct list_node {
    list_node* next;
    list_node* previous;

    // Adds the nodes of this list.
    void collect(std::vector<list_node*>& all) {
        list_node* at = this;
        do {
            all.push_back(at);
            at = at->next;
        } while (at != this);
    }
};

// Has the layout of std::_Rb_tree_node_base. The header of a tree is the parent of its root, and
// the root is the parent of the header.
struct tree_node {
    std::uint32_t color;
    tree_node* parent;
    tree_node* left;
    tree_node* right;

    // Adds this node and those below it.
    void collect(std::vector<tree_node*>& all) {
        all.push_back(this);
        for (tree_node* const below : {left, right}) {
            if (below != nullptr) {
                below->collect(all);
            }
        }
    }
    // Adds the nodes of the tree with this header.
    void collect_tree(std::vector<tree_node*>& all) {
        all.push_back(this);
        if (parent != nullptr) {
            parent->collect(all);
        }
    }
    // Reports the reads of a step to the next node, or to the previous one if `less` is the member
    // of the larger children.
    void report_step(tree_node* tree_node::* less, tree_node* tree_node::* greater,
                     const void* code) const noexcept {
        const auto read = [&](const tree_node* at, tree_node* tree_node::* link) {
            ops::watch(&(at->*link), sizeof(tree_node*), false, code);
            return at->*link;
        };
        const tree_node* at = this;
        if (color == 0 && parent != nullptr && parent->parent == this) { // the header is red
            read(at, greater == &tree_node::left ? &tree_node::right : &tree_node::left);
            return;
        }
        if (const tree_node* below = read(at, greater); below != nullptr) {
            while (below != nullptr) {
                below = read(below, less);
            }
            return;
        }
        const tree_node* above = read(at, &tree_node::parent);
        while (at == read(above, greater)) {
            at = above;
            above = read(above, &tree_node::parent);
        }
    }
};

// Calls a function of the library, which may change the nodes that `fill` adds to a vector. Reports
// each word that it has changed. The checker notes the previous contents of memory, so a word has
// them until it was reported.
template <class Node, class System, class Fill, class... A>
void call_and_report(System& system, const void* code, Fill&& fill, A... arguments) {
    if (!ops::in_body()) {
        system(arguments...);
        return;
    }
    std::vector<Node*> nodes;
    std::vector<Node> before;
    {
        const heap::leave guard;
        fill(nodes);
        for (const Node* const n : nodes) {
            before.push_back(*n);
        }
    }
    system(arguments...);
    constexpr std::size_t word = sizeof(std::uint32_t);
    for (std::size_t i = 0; i != nodes.size(); ++i) {
        const Node is = *nodes[i];
        *nodes[i] = before[i];
        for (std::size_t at = 0; at != sizeof(Node); at += word) {
            const auto* const was = reinterpret_cast<const std::byte*>(nodes[i]) + at;
            if (std::memcmp(was, reinterpret_cast<const std::byte*>(&is) + at, word) != 0) {
                ops::watch(was, word, true, code);
            }
        }
        *nodes[i] = is;
    }
    const heap::leave guard;
    nodes = {};
    before = {};
}

}}} // namespace bide::BIDE_ABI::model::detail

// `symbol` is the name of a function of libstdc++.
#define BIDE_MODEL_NODES(Result, name, symbol, ...)                                                \
    extern "C" Result bide_model_##name(__VA_ARGS__) __asm__(symbol);                              \
    extern "C" Result bide_model_##name(__VA_ARGS__)
#define BIDE_MODEL_LIST "_ZNSt8__detail15_List_node_base"

BIDE_MODEL_NODES(void, list_hook, BIDE_MODEL_LIST "7_M_hookEPS0_",
                 bide::model::detail::list_node* made, bide::model::detail::list_node* behind) {
    using namespace bide::model::detail;
    static constinit system_function<void> system(BIDE_MODEL_LIST "7_M_hookEPS0_");
    const auto fill = [&](std::vector<list_node*>& all) {
        behind->collect(all);
        all.push_back(made);
    };
    call_and_report<list_node>(system, __builtin_return_address(0), fill, made, behind);
}
BIDE_MODEL_NODES(void, list_unhook, BIDE_MODEL_LIST "9_M_unhookEv",
                 bide::model::detail::list_node* removed) {
    using namespace bide::model::detail;
    static constinit system_function<void> system(BIDE_MODEL_LIST "9_M_unhookEv");
    ops::watch(removed, sizeof *removed, false, __builtin_return_address(0));
    const auto fill = [&](std::vector<list_node*>& all) { removed->collect(all); };
    call_and_report<list_node>(system, __builtin_return_address(0), fill, removed);
}
BIDE_MODEL_NODES(void, list_transfer, BIDE_MODEL_LIST "11_M_transferEPS0_S1_",
                 bide::model::detail::list_node* behind, bide::model::detail::list_node* first,
                 bide::model::detail::list_node* last) {
    using namespace bide::model::detail;
    static constinit system_function<void> system(BIDE_MODEL_LIST "11_M_transferEPS0_S1_");
    const auto fill = [&](std::vector<list_node*>& all) {
        behind->collect(all);
        if (std::find(all.begin(), all.end(), first) == all.end()) {
            first->collect(all);
        }
    };
    call_and_report<list_node>(system, __builtin_return_address(0), fill, behind, first, last);
}
BIDE_MODEL_NODES(void, list_reverse, BIDE_MODEL_LIST "10_M_reverseEv",
                 bide::model::detail::list_node* list) {
    using namespace bide::model::detail;
    static constinit system_function<void> system(BIDE_MODEL_LIST "10_M_reverseEv");
    const auto fill = [&](std::vector<list_node*>& all) { list->collect(all); };
    call_and_report<list_node>(system, __builtin_return_address(0), fill, list);
}
BIDE_MODEL_NODES(void, list_swap, BIDE_MODEL_LIST "4swapERS0_S1_",
                 bide::model::detail::list_node* one, bide::model::detail::list_node* other) {
    using namespace bide::model::detail;
    static constinit system_function<void> system(BIDE_MODEL_LIST "4swapERS0_S1_");
    const auto fill = [&](std::vector<list_node*>& all) {
        one->collect(all);
        if (other != one) {
            other->collect(all);
        }
    };
    call_and_report<list_node>(system, __builtin_return_address(0), fill, one, other);
}

#define BIDE_MODEL_INSERT "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_"
BIDE_MODEL_NODES(void, tree_insert, BIDE_MODEL_INSERT, bool is_left,
                 bide::model::detail::tree_node* made, bide::model::detail::tree_node* parent,
                 bide::model::detail::tree_node* header) {
    using namespace bide::model::detail;
    static constinit system_function<void> system(BIDE_MODEL_INSERT);
    const auto fill = [&](std::vector<tree_node*>& all) {
        header->collect_tree(all);
        all.push_back(made);
    };
    call_and_report<tree_node>(system, __builtin_return_address(0), fill, is_left, made, parent,
                               header);
}
#define BIDE_MODEL_ERASE "_ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_"
BIDE_MODEL_NODES(bide::model::detail::tree_node*, tree_erase, BIDE_MODEL_ERASE,
                 bide::model::detail::tree_node* removed, bide::model::detail::tree_node* header) {
    using namespace bide::model::detail;
    static constinit system_function<tree_node*> erase(BIDE_MODEL_ERASE);
    ops::watch(removed, sizeof *removed, false, __builtin_return_address(0));
    tree_node* last = nullptr;
    const auto system = [&] { last = erase(removed, header); };
    const auto fill = [&](std::vector<tree_node*>& all) { header->collect_tree(all); };
    call_and_report<tree_node>(system, __builtin_return_address(0), fill);
    return last;
}

// The step to the next or to the previous node.
#define BIDE_MODEL_STEP(name, symbol, less, greater)                                               \
    BIDE_MODEL_NODES(bide::model::detail::tree_node*, name, symbol,                                \
                     bide::model::detail::tree_node* from) {                                       \
        using namespace bide::model::detail;                                                       \
        static constinit system_function<tree_node*> system(symbol);                               \
        if (ops::in_body()) {                                                                      \
            from->report_step(&tree_node::less, &tree_node::greater, __builtin_return_address(0)); \
        }                                                                                          \
        return system(from);                                                                       \
    }
BIDE_MODEL_STEP(tree_next, "_ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base", left, right)
BIDE_MODEL_STEP(tree_next_const, "_ZSt18_Rb_tree_incrementPKSt18_Rb_tree_node_base", left, right)
BIDE_MODEL_STEP(tree_previous, "_ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base", right, left)
BIDE_MODEL_STEP(tree_previous_const, "_ZSt18_Rb_tree_decrementPKSt18_Rb_tree_node_base", right,
                left)

#undef BIDE_MODEL_STEP
#undef BIDE_MODEL_ERASE
#undef BIDE_MODEL_INSERT
#undef BIDE_MODEL_LIST
#undef BIDE_MODEL_NODES

#endif
