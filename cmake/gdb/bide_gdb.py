# SPDX-License-Identifier: BSL-1.0
"""bide in gdb: what its objects contain, and which tasks wait for what.

    (gdb) source /usr/share/bide/gdb/bide_gdb.py
    (gdb) print connections
    semaphore (0 permits, 2 waiters: thread, task "ask")
    (gdb) info bide-tasks

It only reads memory and calls no function of the program, so it works on running programs and on core
files alike. The program needs debug information (-g). A state that it cannot read gives a text, and no
error of Python.

The layouts are those of the headers that each function names; tests/tools holds them to it.
"""

import os
import re

import gdb
import gdb.printing

MOST_NODES = 100_000  # of one list: a longer one is taken for a broken one
MOST_NAMED = 8        # of the waiters of one object
MOST_FRAMES = 100     # of one chain of coroutines


class Broken(Exception):
    """The memory holds no such object."""


# ---- Values


def is_struct(value_type):
    return value_type.strip_typedefs().code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)


def leaf(value, wanted=None):
    """The first member that is no struct: of a std::atomic, a coroutine_handle, a unique_ptr."""
    if not is_struct(value.type):
        code = value.type.strip_typedefs().code
        return value if wanted is None or code == wanted else None
    for field in value.type.strip_typedefs().fields():
        if hasattr(field, "bitpos"):  # a static member has none
            found = leaf(value[field], wanted)
            if found is not None:
                return found
    return None


def object_at(address, value_type):
    return gdb.Value(int(address)).cast(value_type.pointer()).dereference()


def offset_of(value_type, name):
    """The place and the type of a member, also of one of a base class or of a union without a name; or None."""
    for field in value_type.strip_typedefs().fields():
        if not hasattr(field, "bitpos"):
            continue
        if field.name == name and not field.is_base_class:
            return field.bitpos // 8, field.type
        inner = offset_of(field.type, name) if field.is_base_class or not field.name else None
        if inner is not None:
            return field.bitpos // 8 + inner[0], inner[1]
    return None


class Object:
    """An object whose class has virtual functions. gdb looks for the class of the whole object at each
    access, and warns if it does not find it, which is so for classes made of lambdas."""

    def __init__(self, address, value_type):
        self.address, self.type = int(address), value_type.strip_typedefs().unqualified()

    def __getitem__(self, name):
        found = offset_of(self.type, name)
        if found is None:
            raise Broken(f"no member {name}")
        return object_at(self.address + found[0], found[1])


def number(value, bits=64):
    found = leaf(value)
    if found is None:
        raise Broken("no number where one is expected")
    return int(found) & ((1 << bits) - 1)


def pointer(value):
    found = leaf(value, gdb.TYPE_CODE_PTR)
    if found is None:
        raise Broken("no pointer where one is expected")
    return found


def word_at(address):
    """The pointer at an address, as a number."""
    size = gdb.lookup_type("void").pointer().sizeof
    memory = gdb.selected_inferior().read_memory(address, size)
    return int.from_bytes(bytes(memory), "little")


def pointer_size():
    return gdb.lookup_type("void").pointer().sizeof


def text_at(address):
    return gdb.Value(address).cast(gdb.lookup_type("char").pointer()).string(errors="replace")


def quoted(address):
    return '"' + text_at(address) + '"'


def plural(count, one, many=None):
    return f"{count} {one if count == 1 else many or one + 's'}"


# ---- Names


def without_version(name):
    """Leaves the inline namespace out, and the std::string that is no typedef."""
    name = re.sub(r"\bbide::v\d\w*::", "bide::", name)
    name = re.sub(r"\bstd::__\w+::", "std::", name)
    return re.sub(r"std::basic_string<char, std::char_traits<char>, std::allocator<char> ?>",
                  "std::string", name)


def symbol_at(address):
    """The demangled name of what lies at an address, or ""."""
    if address == 0:
        return ""
    try:
        text = gdb.execute(f"info symbol {address:#x}", to_string=True)
    except gdb.error:
        return ""
    found = re.match(r"(.*?)( \+ \d+)? in section ", text)
    return found[1] if found else ""


def matching(text, opening, closing):
    """The place of the bracket that the last character closes; the end if there is none."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] == closing and text[at - 1:at + 1] != "->":
            depth += 1
        elif text[at] == opening:
            depth -= 1
        if depth == 0:
            return at
    return len(text)


def function_name(symbol):
    """A demangled function without its result, its parameters, the arguments of a template, and the
    suffix of a coroutine's part."""
    name = re.sub(r"( const| \[clone [^\]]*\])+$", "", symbol)
    if name.endswith(")"):
        name = name[:matching(name, "(", ")")]
    if name.endswith(">") and not re.search(r"operator\W*>$", name):
        name = name[:matching(name, "<", ">")]
    depth = 0
    for at in range(len(name) - 1, -1, -1):  # the result stands before a space outside of brackets
        if name[at] in ">)}":
            depth += 1
        elif name[at] in "<({":
            depth -= 1
        elif name[at] == " " and depth == 0 and not name[:at].endswith("operator"):
            name = name[at + 1:]
            break
    return without_version(name)


def function_at(address):
    symbol = symbol_at(address)
    if not symbol.startswith("_Z"):
        return function_name(symbol)
    # gdb cannot demangle it, such as the constraints of templates: its plain names do.
    rest, parts = re.sub(r"^_ZN?[KVr]*", "", symbol), []
    while found := re.match(r"\d+", rest):
        end = found.end() + int(found[0])
        parts.append(rest[found.end():end])
        rest = rest[end:]
    return without_version("::".join(parts)) or symbol


def suspended_in(frame):
    """Where a suspended coroutine is: the function of the resume pointer, the frame's first word."""
    resume = word_at(frame)
    if resume == 0:
        return "at its end"
    name = function_at(resume)
    if not name:
        return f"the coroutine at {frame:#x}"
    where = gdb.find_pc_line(resume)
    if where.symtab is not None and where.line != 0:
        name += f" ({os.path.basename(where.symtab.filename)}:{where.line})"
    return name


# ---- What an operation waits for (core/async_op.hpp, core/wait_ops.hpp)

# The name of the operation, what it waits for, and where its address is: the first word of the
# operation, or of its payload.
FIRST, CARRIED = "of the operation", "of the payload"
OPERATIONS = [
    (r"basic_condition_variable<.*>::waiting<", "condition_variable", CARRIED),
    (r"keyed_mutex<.*>::locking", "key of keyed_mutex", CARRIED),
    (r"object_pool<.*>::acquiring", "object_pool", FIRST),
    (r"object_pool_access::reserving<", "object_pool", FIRST),
    (r"once_operations<.*>::beginning", "once_flag or once_cell", FIRST),
    (r"basic_notify<.*>::(listener::listening|waiting)", "notify", FIRST),
    (r"basic_semaphore<.*>::acquiring", "semaphore", FIRST),
    (r"lock_wait<.*basic_adaptive_mutex<", "adaptive_mutex", FIRST),
    (r"basic_adaptive_lock<.*>::coroutine_locking<", "adaptive_mutex", FIRST),
    (r"lock_wait<.*basic_biased_shared_mutex<", "biased_shared_mutex", FIRST),
    (r"lock_wait<.*basic_shared_mutex<", "shared_mutex", FIRST),
    (r"lock_wait<.*basic_mutex<", "mutex", FIRST),
    (r"basic_gate<.*>::passing", "event or latch", FIRST),
    (r"basic_phase_gate<.*>::passing", "barrier", FIRST),
    (r"item_wait<.*>::receiving", "item of channel", FIRST),
    (r"item_wait<.*>::sending", "room in channel", FIRST),
    (r"join_handle<.*>::joining", "end of task", FIRST),
    (r"basic_group<.*>::end::ending", "end of a group", FIRST),
    (r"join_set<.*>::joining_next", "join_set", FIRST),
    (r"oneshot_state<.*>::close_wait", "oneshot", FIRST),
    (r"basic_watch_receiver<.*>::changing", "watch", FIRST),
    (r"basic_broadcast_subscriber<.*>::receiving", "broadcast", FIRST),
    (r"::readiness|basic_uring_driver<|socket_ops", "file", None),
    (r"time_wait", "time", None),
    (r"select", "select", None),
]


def operation_text(suspension):
    """What the wait at a `suspension` waits for, or ""."""
    interrupt = suspension["interrupt"]  # leads to the awaiter, if that is one of an async_op
    awaiter = int(interrupt["context_"])
    if "::awaiter::on_interrupt" not in symbol_at(int(interrupt["call_"])):
        return ""
    operation = word_at(awaiter)
    name = symbol_at(word_at(operation))
    at = operation + max(8, pointer_size())
    for pattern, text, place in OPERATIONS:
        if re.search(r"ops_of<bide::\w+::(detail::)?.*" + pattern, name):
            if place is None:
                return text
            target = word_at(at if place is FIRST else at + 24)
            symbol = symbol_at(target)
            return f"{text} {target:#x}" + (f" <{without_version(symbol)}>" if symbol else "")
    found = re.search(r"ops_of<(.*)>$", name)
    return without_version(found[1]) if found else ""


# ---- Tasks (task/detail/task_control.hpp)

ACTIVE, CLAIMED, COMPLETE, CANCELLED = 1, 2, 8, 16


def type_beside(value_type, name):
    """A type of the same version of bide as `value_type`."""
    prefix = re.search(r"\b(bide::(v\d\w*::)?)", str(value_type.strip_typedefs()))
    prefix = prefix[1] if prefix else "bide::"
    return gdb.lookup_type(name.replace("bide::", prefix))


def class_of(context):
    """The name of the class of an object with virtual functions."""
    return symbol_at(word_at(int(context)))


def task_of(context):
    """The spawned task that a basic_task_context* belongs to, as a task_header; or None."""
    for _ in range(MOST_FRAMES):
        if int(context) == 0:
            return None
        name, here = class_of(context), context.type.strip_typedefs().target()
        if re.search(r"vtable for .*\btask_cell<", name):
            kind = type_beside(here, "bide::detail::basic_task_header<bide::native_platform>")
            return Task(Object(context, kind))
        if not re.search(CHILD, name):
            return None
        kind = type_beside(here, "bide::detail::basic_when_child<bide::native_platform>")
        context = Object(context, kind)["when_"]["context_"]
    return None


CHILD = r"vtable for .*\btask_child<"  # of when_all() and when_any()


class Chain:
    """A basic_task_control, an Object: a spawned task, or a child of when_all() or when_any()."""

    def __init__(self, control):
        self.control = control
        self.word = number(control["state_"]["word_"])
        if self.word >> 32 == 0 and not self.word & COMPLETE:
            raise Broken("it has no reference")

    @property
    def is_waiting(self):
        return self.word & (ACTIVE | COMPLETE) == 0

    def state(self):
        text = "done" if self.word & COMPLETE else "waiting" if self.is_waiting else "queued or running"
        if self.word & CANCELLED and not self.word & COMPLETE:
            text += ", cancelled"
        return text

    def promise_of(self, frame):
        """The promise of a task, which lies behind the frame's two pointers; None if another kind of
        coroutine has that frame: it has another word in the place of the context."""
        kind = type_beside(self.control.type, "bide::detail::task_promise_base")
        promise = object_at(frame + 2 * pointer_size(), kind)
        return promise if int(promise["context_"]) == self.control.address else None

    def leaf(self):
        """The frame of its innermost coroutine. Requires: is_waiting."""
        return int(pointer(self.control["at_"].dereference()["leaf"]))

    def frames(self):
        """Its suspended coroutines, innermost first. Requires: is_waiting."""
        frame = self.leaf()
        frames = []
        while frame != 0 and frame not in frames and len(frames) < MOST_FRAMES:
            frames.append(frame)
            promise = self.promise_of(frame)
            frame = int(pointer(promise["parent_"])) if promise is not None else 0
        return frames

    def children(self):
        """The chains that its innermost coroutine awaits together. Requires: is_waiting."""
        promise = self.promise_of(self.leaf())
        children = []
        if promise is None:
            return children
        at = promise["awaited_frames_"]
        while int(at) != 0 and len(children) < MOST_NAMED:
            frame = int(pointer(at["to"]))
            if frame != 0 and word_at(frame) != 0:
                context = object_at(frame + 2 * pointer_size(), promise.type)["context_"]
                if int(context) != 0 and re.search(CHILD, class_of(context)):
                    kind = "bide::detail::basic_task_control<bide::native_platform>"
                    children.append(Chain(Object(context, type_beside(promise.type, kind))))
            at = at["next"].cast(at.type)
        return children

    def waits_for(self):
        """What it waits for, or "". Requires: is_waiting."""
        at = self.control["at_"].dereference()
        if "basic_when_state<" in symbol_at(int(at["interrupt"]["call_"])):
            return "its children"
        return operation_text(at)

    def place(self):
        """In which coroutine it is suspended, and what it waits for."""
        if not self.is_waiting:
            return self.state()
        frames, what = self.frames(), self.waits_for()
        text = "in " + (suspended_in(frames[0]) if frames else "an unknown place")
        return text + (f", waits for {what}" if what else "")

    def lines(self, level=0):
        """place(), then its children, then the coroutines that await it."""
        lines = [self.place()]
        if self.is_waiting and level < MOST_NAMED:
            for child in self.children():
                below = child.lines(level + 1)
                lines += ["    child: " + below[0]] + ["    " + line for line in below[1:]]
            lines += ["    awaited by " + suspended_in(frame) for frame in self.frames()[1:]]
        return lines


class Task(Chain):
    """A task_header."""

    def name(self):
        address = int(pointer(self.control["name_"]))
        return quoted(address) if address else ""

    def tag(self):
        which = number(self.control["tag_"], 8)
        if which == 0:
            return ""
        prefix = re.search(r"bide::(v\d\w*::)?", str(self.control.type))[0]
        texts = gdb.lookup_global_symbol(prefix + "detail::all_tags")
        if texts is None:
            return f"number {which}"
        array = leaf(texts.value()["texts_"], gdb.TYPE_CODE_ARRAY)
        return quoted(int(pointer(array[which - 1])))

    def labelled(self):
        """lines(), with the name and the tag before them."""
        lines = self.lines()
        tag = f", tag {self.tag()}" if self.tag() else ""
        return [f"{self.name() or 'unnamed'}{tag}: {lines[0]}"] + lines[1:]


# ---- Waiters (core/waiter.hpp)


def waiter_text(node):
    """Which kind of waiter has queued the node."""
    call = int(node["waker_"]["call_"])
    if call == 0:
        return "thread"
    if node["contested_"]:
        return "select"
    name = symbol_at(call)
    if "callback_wait<" in name:
        return "callback"
    if "retry_on_grant<" in name:
        return "coroutine"
    if "coroutine_wait<" not in name:
        return "waker"
    kind = type_beside(node.type, "bide::detail::coroutine_wait<bide::native_platform>")
    wait = object_at(node["waker_"]["context_"], kind)
    if wait["is_alone_"]:
        return "coroutine"
    task = task_of(wait["task_"]["of"])
    if task is None:
        return "coroutine"
    return f"task {task.name()}" if task.name() else "task"


def nodes_of(queue):
    """The nodes of a basic_waiter_queue, the first one first."""
    last = pointer(queue["last_"])
    if int(last) == 0:
        return []
    node_type = last.type.strip_typedefs().target()
    nodes = []
    at = last.dereference()
    while True:
        following = object_at(at["next_"], node_type)
        if int(following["prev_"]) != int(at.address):
            raise Broken("the queue of its waiters is no list")
        nodes.append(following)
        if int(following.address) == int(last):
            return nodes
        if len(nodes) == MOST_NODES:
            raise Broken("the queue of its waiters has no end")
        at = following


def listed(nodes, text=waiter_text):
    shown = [text(node) for node in nodes[:MOST_NAMED]]
    if len(nodes) > MOST_NAMED:
        shown.append(f"and {len(nodes) - MOST_NAMED} more")
    return ", ".join(shown)


def waiters_text(nodes, text=waiter_text):
    return f", {plural(len(nodes), 'waiter')}: {listed(nodes, text)}" if nodes else ""


def sides_text(senders, receivers):
    parts = ""
    for nodes, name in ((senders, "sender"), (receivers, "receiver")):
        if nodes:
            verb = "waits" if len(nodes) == 1 else "wait"
            parts += f", {plural(len(nodes), name)} {verb}: {listed(nodes)}"
    return parts


def check_counted(is_flagged, nodes, lock_held, counted=None):
    """The flag of a word says whether the queue is empty, while its lock is free."""
    if lock_held:
        return
    if is_flagged != bool(nodes) or (counted is not None and is_flagged and counted != len(nodes)):
        raise Broken("its word and its queue say different things")


# ---- Locks


class Permits:
    """A basic_permit_queue (sync/detail/permit_queue.hpp)."""

    def __init__(self, queue):
        self.most = min(((1 << 8 * pointer_size() - 1) - 1) // 2, ((1 << 63) - 1) // 16)
        word = number(queue["word_"])
        self.is_queued, self.is_closed, count = bool(word & 4), bool(word & 8), word // 16
        if self.is_queued and self.is_closed:
            raise Broken("closed with waiters")
        self.nodes = nodes_of(queue["queue_"])
        check_counted(self.is_queued, self.nodes, word & 3, count)
        self.free = 0 if self.is_queued else count
        if self.free > self.most:
            raise Broken("too many permits")

    def handed(self):
        """How many permits the first waiter has already."""
        if not self.nodes:
            return 0
        head = self.nodes[0]
        return int(head["request_"]["amount"]) - int(head["missing"])


def semaphore_text(value):
    permits = Permits(value["permits_"])
    text = plural(permits.free, "permit") + (", closed" if permits.is_closed else "")
    return text + waiters_text(permits.nodes)


def mutex_text(value):
    permits = Permits(value["permits_"])
    if permits.free > 1 or permits.is_closed:
        raise Broken("a mutex has one permit")
    return ("not locked" if permits.free else "locked") + waiters_text(permits.nodes)


def shared_mutex_text(value):
    permits = Permits(value["permits_"])
    whole = permits.most
    most = whole // 2 + 1  # of a reader that may upgrade
    kinds = {whole: "writer", most: "upgradable reader", whole - most: "upgrade", 1: "reader"}
    if permits.is_closed:
        raise Broken("a shared_mutex is never closed")
    held = whole - permits.free - permits.handed()
    if held == 0:
        text = "not locked"
    elif held == whole:
        text = "locked"
    else:
        readers = held % most
        text = plural(readers, "reader") if readers else ""
        if held >= most:
            text += (", " if text else "") + "1 upgradable reader"

    def waiter(node):
        return f"{waiter_text(node)} as {kinds.get(int(node['request_']['amount']), 'unknown')}"
    return text + waiters_text(permits.nodes, waiter)


def adaptive_mutex_text(value):
    """sync/adaptive_mutex.hpp"""
    word = number(value["lock_"]["word_"])
    nodes = nodes_of(value["lock_"]["queue_"])
    check_counted(bool(word & 4), nodes, word & 3)
    if not word & (4 | 64) and word & ~(3 | 8):
        raise Broken("marks for waiters that are not there")
    tries = "a coroutine" if word & 64 else "its first waiter" if word & 4 else None
    text = "locked" if word & 8 else f"free, {tries} tries" if tries else "not locked"
    return text + waiters_text(nodes)


def biased_shared_mutex_text(value):
    """sync/biased_shared_mutex.hpp"""
    biased, permits = value["permits_"], Permits(value["permits_"]["permits_"])
    slots = biased["slots_"]
    words = [number(slots[i]["readers"]) for i in range(slots.type.sizeof // slots[0].type.sizeof)]
    if any(word not in (0, 1) and not word & 1 for word in words) or permits.is_closed:
        raise Broken("a count of readers in a slot that is not open")
    lent = permits.most // 2 if biased["biased_"] else 0
    held = permits.most - permits.free - permits.handed() - lent + sum(word >> 1 for word in words)
    if held == permits.most:
        return "locked" + waiters_text(permits.nodes)
    return (plural(held, "reader") if held else "not locked") + waiters_text(permits.nodes)


def queue_of(value, most):
    """The word and the nodes of a basic_condition_queue, or of a basic_notify_queue."""
    word, nodes = number(value["queue_"]["word_"], 32), nodes_of(value["queue_"]["queue_"])
    check_counted(bool(word & 4), nodes, word & 3)
    if word > most:
        raise Broken("marks that there are not")
    return word, nodes


def condition_variable_text(value):
    """sync/condition_variable.hpp"""
    _, nodes = queue_of(value, 7)
    return waiters_text(nodes)[2:] or "no waiters"


def notify_text(value):
    """sync/notify.hpp"""
    word, nodes = queue_of(value, 11)

    def waiter(node):
        return waiter_text(node) if int(node["request_"]["amount"]) else "listener"
    return ("1 permit" if word & 8 else "no permit") + waiters_text(nodes, waiter)


def once_text(value):
    """sync/once.hpp"""
    turns = Permits(value["turns_"])
    if turns.free > 1:
        raise Broken("more turns than one")
    text = "initialised" if turns.is_closed else "not initialised" if turns.free else "being initialised"
    return text + waiters_text(turns.nodes)


def keyed_mutex_text(value):
    """sync/keyed_mutex.hpp"""
    shards, count = pointer(value["shards_"]), int(value["count_"])
    if count == 0 or count > 4096 or count & (count - 1):
        raise Broken("no number of shards")
    keys, nodes = 0, []
    for i in range(count):
        shard = shards[i]
        heap = pointer(shard["buckets_"]["heap"])
        buckets = heap if int(heap) else shard["first_"]
        for bucket in range(min(int(shard["buckets_"]["count"]), MOST_NODES)):
            at = buckets[bucket]
            while int(at) != 0 and keys < MOST_NODES:
                keys += 1
                nodes += Permits(at["permits"]).nodes
                at = at["next"]
    return plural(keys, "key") + " in use" + waiters_text(nodes)


def object_pool_text(value):
    """sync/object_pool.hpp"""
    permits, idle = Permits(value["permits_"]), value["idle_"]
    size, free = int(idle["size_"]), int(idle["idle_"])
    if free > size or size > int(value["limit_"]):
        raise Broken("more objects than its limit")
    text = f"{size} of {plural(int(value['limit_']), 'object')}, {free} idle"
    return text + (", closed" if permits.is_closed else "") + waiters_text(permits.nodes)


def gate(value):
    """A basic_gate (sync/detail/gate.hpp): its count and its waiters."""
    word = number(value["gate_"]["word_"])
    nodes = nodes_of(value["gate_"]["queue_"])
    check_counted(bool(word & 4), nodes, word & 3)
    if word & 4 and word // 8 == 0:
        raise Broken("open with waiters")
    return word // 8, nodes


def event_text(value):
    count, nodes = gate(value)
    if count > 1:
        raise Broken("an event counts to one")
    return ("not set" if count else "set") + waiters_text(nodes)


def latch_text(value):
    count, nodes = gate(value)
    return (f"{count} left" if count else "open") + waiters_text(nodes)


# ---- Channels


def item_type(value):
    return without_version(str(value.type.strip_typedefs().template_argument(0)))


def ring_text(core):
    """channel/ring.hpp, channel/channel.hpp"""
    ring = core["ring_"]
    capacity, closed_bit, lap = (int(ring[field]) for field in ("capacity_", "closed_bit_", "lap_"))
    head, tail = number(ring["head_"]), number(ring["tail_"])
    if closed_bit == 0 or closed_bit & (closed_bit - 1) or capacity >= closed_bit or lap not in (0, 2 * closed_bit):
        raise Broken("no ring of such a capacity")
    is_closed, end = bool(tail & closed_bit), tail & ~closed_bit
    first, last = head & (closed_bit - 1), end & (closed_bit - 1)
    size = last - first if first < last else 0 if end == head else capacity - first + last
    if size > capacity:
        raise Broken("more items than room")
    word = number(core["word_"], 32)
    senders, receivers = nodes_of(core["senders_"]), nodes_of(core["receivers_"])
    check_counted(bool(word & 2), senders, word & 1)
    check_counted(bool(word & 4), receivers, word & 1)
    return f"{size} of {capacity}, {'closed' if is_closed else 'open'}" + sides_text(senders, receivers)


def unbounded_text(core):
    """channel/unbounded_channel.hpp"""
    sending, receiving = core["sending_"], core["receiving_"]
    bits = 8 * pointer_size()
    size = (number(sending["count"]) - number(receiving["count"])) & ((1 << bits) - 1)
    if size >> bits - 2 or number(sending["word"], 32) > 3:
        raise Broken("no count of items")
    state = "closed" if number(sending["word"], 32) & 2 else "open"
    return f"{plural(size, 'item')}, {state}" + sides_text([], nodes_of(sending["receivers"]))


def find_field(value, name, depth=4):
    if depth == 0 or not is_struct(value.type):
        return None
    for field in value.type.strip_typedefs().fields():
        if hasattr(field, "bitpos"):
            found = value[field] if field.name == name else find_field(value[field], name, depth - 1)
            if found is not None:
                return found
    return None


def locked_text(core):
    """channel/detail/locked_core.hpp"""
    word, size = number(core["word_"], 32), number(core["count_"])
    capacity = find_field(core["items_"], "capacity_")
    if capacity is None or word > 3 or size > int(capacity):
        raise Broken("more items than room")
    state = "closed" if word & 2 else "open"
    sides = sides_text(nodes_of(core["senders_"]), nodes_of(core["receivers_"]))
    return f"{size} of {int(capacity)}, {state}" + sides


def core_text(core):
    name = str(core.type.strip_typedefs())
    if "basic_channel_core<" in name:
        return ring_text(core)
    return unbounded_text(core) if "basic_unbounded_core<" in name else locked_text(core)


def channel_text(value):
    return core_text(value["core_"])


def handle_text(value):
    """channel/handles.hpp"""
    shared = value["to_"]
    if int(shared) == 0:
        return "empty"
    senders, receivers = number(shared["senders_"]), number(shared["receivers_"])
    if (senders | receivers) >> 48:
        raise Broken("no count of handles")
    return f"{core_text(shared['core'])}, {plural(senders, 'sender')}, {plural(receivers, 'receiver')}"


# ---- Tasks and their runners


def task_text(value):
    frame = int(pointer(value["frame_"]))
    if frame == 0:
        return "empty"
    name = f", {quoted(int(value['name_']))}" if int(value["name_"]) else ""
    if word_at(frame) == 0:
        return "done" + name
    return f"suspended in {suspended_in(frame)}" + name


def join_handle_text(value):
    cell = pointer(value["cell_"])
    if int(cell) == 0:
        return "empty"
    task = Task(Object(cell, cell.type.strip_typedefs().target()))
    text = task.state() + (f", {task.name()}" if task.name() else "")
    return text + (f", {task.place()}" if task.is_waiting else "")


def tasks_of(registry):
    """The tasks of a basic_task_registry that wait (task/detail/task_control.hpp)."""
    tasks = []
    at = registry["tasks_"]["first_"]
    header_type = at.type.strip_typedefs().target()
    for _ in range(int(registry["size_"])):
        if int(at) == 0 or len(tasks) == MOST_NODES:
            break
        task = Task(Object(at, header_type))
        if task.is_waiting:
            tasks.append(task)
        at = task.control["next_in_list"]
    return tasks


def waiting_in(registries):
    return [task for registry in registries for task in tasks_of(registry)]


class Runner:
    """What runs tasks: its name, its address, its registries, and its counts of tasks if they are known."""

    def __init__(self, name, address, registries, counts=None, state=""):
        self.name, self.address, self.registries = name, address, registries
        self.counts, self.state = counts, state

    def text(self):
        parts = [self.state] if self.state else []
        if self.counts is not None:
            spawned, ended = self.counts
            parts.append(f"{plural(max(spawned - ended, 0), 'task')} of {spawned} left")
        parts.append(f"{len(waiting_in(self.registries))} waiting")
        return ", ".join(parts)


def counts_of(life, workers):
    ended = number(life["ended_externally_"]) + sum(number(w["completed"]) for w in workers)
    return number(life["spawned_externally_"]) + sum(number(w["spawned"]) for w in workers), ended


def of_pool(pool, address=None, life=None):
    """sched/detail/pool.hpp, sched/detail/worker.hpp"""
    size = min(number(pool["workers_"]["size_"]), MOST_NODES)
    workers = [pool["workers_"]["first_"][i] for i in range(size)]
    if not workers:
        raise Broken("no workers")
    asleep = sum(number(w["sleeper"]["state_"], 32) in (1, 2) for w in workers)
    counts = counts_of(life, workers) if life is not None else None
    state = f"{plural(len(workers), 'worker')}, {asleep} asleep"
    return Runner("scheduler", address, [w["tasks"] for w in workers], counts, state)


def of_scheduler(scheduler):
    core = pointer(scheduler["core_"])
    if int(core) == 0:
        raise Broken("it has no core")
    return of_pool(core["own_pool_"], int(scheduler.address), core)


def of_loop(loop, address, life=None):
    """sched/detail/loop.hpp"""
    worker = loop["workers_"][0]
    return Runner("run_loop", address, [worker["tasks"]], counts_of(life, [worker]) if life else None)


def of_run_loop(run_loop):
    core = pointer(run_loop["core_"])
    if int(core) == 0:
        raise Broken("it has no core")
    return of_loop(core["loop_"], int(run_loop.address), core)


def of_executor_runner(runner):
    """sched/executor_runner.hpp"""
    own = next(f for f in runner.type.strip_typedefs().fields() if f.name == "home_")  # not the base's
    home = pointer(runner[own])
    if int(home) == 0:
        raise Broken("it has no tasks")
    left = number(home["users_"]) - 1
    if left < 0 or left >> 48:
        raise Broken("no count of tasks")
    state = plural(left, "task") + " left"
    return Runner("executor_runner", int(runner.address), [home["tasks_"]], state=state)


RUNNERS = {"scheduler": of_scheduler, "run_loop": of_run_loop, "executor_runner": of_executor_runner}


# ---- The printers


class Printer:
    def __init__(self, value, name, text):
        self.value, self.name, self.text = value, name, text

    def to_string(self):
        name = self.name
        try:
            if "<>" in name:
                name = name.replace("<>", f"<{item_type(self.value)}>")
            return f"{name} ({self.text(self.value)})"
        except Broken as error:
            return f"{name} (broken: {error})"
        except gdb.MemoryError:
            return f"{name} (broken: it leads to memory that is not there)"
        except Exception as error:  # whatever the memory has made of it
            return f"{name} (not readable: {error})"


PRINTERS = {
    "basic_semaphore": ("semaphore", semaphore_text),
    "basic_mutex": ("mutex", mutex_text),
    "basic_shared_mutex": ("shared_mutex", shared_mutex_text),
    "basic_adaptive_mutex": ("adaptive_mutex", adaptive_mutex_text),
    "basic_biased_shared_mutex": ("biased_shared_mutex", biased_shared_mutex_text),
    "basic_condition_variable": ("condition_variable", condition_variable_text),
    "basic_notify": ("notify", notify_text),
    "basic_once_flag": ("once_flag", once_text),
    "once_cell": ("once_cell<>", once_text),
    "keyed_mutex": ("keyed_mutex<>", keyed_mutex_text),
    "object_pool": ("object_pool<>", object_pool_text),
    "basic_event": ("event", event_text),
    "basic_latch": ("latch", latch_text),
    "basic_channel": ("channel<>", channel_text),
    "basic_unbounded_channel": ("unbounded_channel<>", channel_text),
    "basic_priority_channel": ("priority_channel<>", channel_text),
    "basic_sliding_channel": ("sliding_channel<>", channel_text),
    "basic_sender": ("sender<>", handle_text),
    "basic_receiver": ("receiver<>", handle_text),
    "task": ("task<>", task_text),
    "join_handle": ("join_handle<>", join_handle_text),
    "scheduler": ("scheduler", lambda value: of_scheduler(value).text()),
    "run_loop": ("run_loop", lambda value: of_run_loop(value).text()),
    "executor_runner": ("executor_runner", lambda value: of_executor_runner(value).text()),
}


def make_printer():
    printers = gdb.printing.RegexpCollectionPrettyPrinter("bide")
    for name, (shown, text) in PRINTERS.items():
        def make(value, shown=shown, text=text):
            return Printer(value, shown, text)
        printers.add_printer(name, rf"^bide::(v\d\w*::)?{name}(<.*>)?$", make)
    return printers


# ---- info bide-tasks


def runner_of(value):
    """The runner that an expression names: an object, a reference, a pointer, plain or smart."""
    for _ in range(4):
        kind = value.type.strip_typedefs()
        if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            value = value.referenced_value()
        elif kind.code == gdb.TYPE_CODE_PTR:
            if int(value) == 0:
                raise gdb.GdbError("the pointer is null")
            value = value.dereference()
        else:
            found = re.match(r"bide::(v\d\w*::)?(\w+)$", str(kind.unqualified()))
            if found and found[2] in RUNNERS:
                return RUNNERS[found[2]](value)
            inner = leaf(value, gdb.TYPE_CODE_PTR) if kind.code == gdb.TYPE_CODE_STRUCT else None
            if inner is None or not re.match(r"std::", str(kind)):
                break
            value = inner
    raise gdb.GdbError(f"no scheduler, run_loop or executor_runner, but a {without_version(str(value.type))}")


def variables_of(frame):
    """`this` and the worker of a function of the pool, where the debug information has them."""
    for name in ("this", "w"):
        try:
            value = frame.read_var(name)
            if not value.is_optimized_out:
                yield value
        except (ValueError, gdb.error):
            pass


def runner_of_frame(frame):
    """The runner that a function of a pool or of a loop works for."""
    for value in variables_of(frame):
        kind = value.type.strip_typedefs()
        if kind.code not in (gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF):
            continue
        try:
            value = value.referenced_value()
            name = str(value.type.strip_typedefs().unqualified())
            if re.match(r"bide::(v\d\w*::)?detail::basic_worker<", name):
                value = value["pool"].referenced_value()
            elif re.match(r"bide::(v\d\w*::)?detail::basic_loop<", name):
                return of_loop(value, int(value.address))
            elif not re.match(r"bide::(v\d\w*::)?detail::basic_pool<", name):
                continue
            core = type_beside(value.type, "bide::detail::scheduler_core")
            core = Object(int(value.address) - offset_of(core, "own_pool_")[0], core)
            return of_pool(value, int(core["scheduler_"].address), core)
        except Exception:  # another frame may have it
            continue
    return None


def runners_of_threads():
    """The runners whose loops are on the stacks of threads, each once."""
    found = {}
    selected = gdb.selected_thread()
    try:
        frame_before = gdb.selected_frame() if selected else None
    except gdb.error:
        frame_before = None
    try:
        for thread in sorted(gdb.selected_inferior().threads(), key=lambda t: t.num):
            if not thread.is_valid():
                continue
            try:
                thread.switch()
                frame, steps = gdb.newest_frame(), 0
                while frame is not None and frame.is_valid() and steps < 1000:
                    name = frame.name() or ""
                    if "basic_pool<" in name or "basic_maintenance<" in name or "basic_loop<" in name:
                        runner = runner_of_frame(frame)
                        if runner is not None:
                            found.setdefault(runner.address, runner)
                            break
                    frame, steps = frame.older(), steps + 1
            except gdb.error:
                continue
    finally:
        if selected is not None and selected.is_valid():
            selected.switch()
            if frame_before is not None and frame_before.is_valid():
                frame_before.select()
    return list(found.values())


class InfoBideTasks(gdb.Command):
    """Lists the tasks of bide that wait: info bide-tasks [EXPRESSION]

Each task with its name, its tag, the coroutine in which it is suspended, what that waits for, and
the coroutines that await it. Equal ones are counted.

EXPRESSION is a scheduler, a run_loop or an executor_runner, or leads to one. Without it, lists those
of each scheduler and loop that a thread runs at this moment."""

    def __init__(self):
        super().__init__("info bide-tasks", gdb.COMMAND_STATUS, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        try:
            if argument.strip():
                runners = [runner_of(gdb.parse_and_eval(argument))]
            else:
                runners = runners_of_threads()
            if not runners:
                raise gdb.GdbError("no thread runs a scheduler or a loop of bide (compile with -g); "
                                   "name one: info bide-tasks EXPRESSION")
            for runner in runners:
                self.show(runner)
        except Broken as error:
            raise gdb.GdbError(f"broken: {error}")
        except gdb.MemoryError:
            raise gdb.GdbError("broken: it leads to memory that is not there")
        except gdb.GdbError:
            raise
        except Exception as error:  # of the expression, too
            raise gdb.GdbError(str(error))

    @staticmethod
    def show(runner):
        gdb.write(f"bide::{runner.name} {runner.address:#x}: {runner.text()}\n")
        counted = {}
        for task in waiting_in(runner.registries):
            try:
                lines = task.labelled()
            except Exception as error:
                lines = [f"a task that is not readable: {error}"]
            counted[tuple(lines)] = counted.get(tuple(lines), 0) + 1
        # In the order of their names, which is the same in each run of a program; addresses differ.
        for lines, count in sorted(counted.items(), key=lambda item: re.sub("0x[0-9a-f]+", "", str(item))):
            times = f"{count} x " if count > 1 else ""
            gdb.write("".join(f"  {times if i == 0 else ''}{line}\n" for i, line in enumerate(lines)))


gdb.printing.register_pretty_printer(None, make_printer(), replace=True)
InfoBideTasks()
