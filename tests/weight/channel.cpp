#include <bide/channel/channel.hpp>

int main() {
    bide::channel<int> values(1);
    static_cast<void>(values.send(1));
    return values.recv().value_or(0);
}
