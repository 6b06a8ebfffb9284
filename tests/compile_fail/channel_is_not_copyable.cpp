// expect: deleted (copy )?(function|constructor)|is deleted|implicitly-deleted
#include <bide/channel/channel.hpp>

int main() {
    bide::channel<int> ch(1);
#if defined(BIDE_CONTROL)
    bide::channel<int>& same = ch;
#else
    bide::channel<int> same = ch;
#endif
    same.close();
}
