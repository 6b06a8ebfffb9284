#ifndef BIDE_CORE_DETAIL_PAIRING_HEAP_HPP
#define BIDE_CORE_DETAIL_PAIRING_HEAP_HPP

// An intrusive pairing heap (Fredman, Sedgewick, Sleator, Tarjan, Algorithmica 1986): insertion in
// constant time, removal of any node in amortised logarithmic time, and no allocation, so that
// arming a time-out cannot fail.

#include <bide/core/config.hpp>

namespace bide::inline BIDE_ABI {
namespace detail {

template <class Node> struct heap_links {
    Node* child = nullptr; // the first
    Node* next = nullptr;  // sibling
    Node* back = nullptr;  // the previous sibling, or the parent of the first child
};

// Node has `heap_links<Node> links` and `bool before(const Node&) const noexcept`.
template <class Node> class pairing_heap {
public:
    bool empty() const noexcept { return root_ == nullptr; }
    Node* top() const noexcept { return root_; }

    void push(Node& n) noexcept {
        n.links = {};
        root_ = root_ == nullptr ? &n : meld(root_, &n);
    }

    // Requires: `n` is inside.
    void remove(Node& n) noexcept {
        Node* const rest = pair_up(n.links.child);
        if (&n == root_) {
            root_ = rest;
        } else {
            cut(n);
            if (rest != nullptr) {
                root_ = meld(root_, rest);
            }
        }
        n.links = {};
    }

private:
    // Two roots become one.
    static Node* meld(Node* a, Node* b) noexcept {
        if (b->before(*a)) {
            Node* const t = a;
            a = b;
            b = t;
        }
        b->links.back = a;
        b->links.next = a->links.child;
        if (b->links.next != nullptr) {
            b->links.next->links.back = b;
        }
        a->links.child = b;
        return a;
    }

    static void cut(Node& n) noexcept {
        Node* const back = n.links.back;
        (back->links.child == &n ? back->links.child : back->links.next) = n.links.next;
        if (n.links.next != nullptr) {
            n.links.next->links.back = back;
        }
        n.links.next = n.links.back = nullptr;
    }

    // Melds siblings two by two from the left, then all of them from the right.
    static Node* pair_up(Node* first) noexcept {
        Node* pairs = nullptr; // chained through `next`, the rightmost first
        while (first != nullptr) {
            Node* const a = first;
            Node* const b = a->links.next;
            first = b == nullptr ? nullptr : b->links.next;
            a->links.next = a->links.back = nullptr;
            if (b != nullptr) {
                b->links.next = b->links.back = nullptr;
            }
            Node* const one = b == nullptr ? a : meld(a, b);
            one->links.next = pairs;
            pairs = one;
        }
        Node* all = nullptr;
        while (pairs != nullptr) {
            Node* const one = pairs;
            pairs = one->links.next;
            one->links.next = nullptr;
            all = all == nullptr ? one : meld(all, one);
        }
        return all;
    }

    Node* root_ = nullptr;
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
