// Runs both halves at once, each also on the workers of the other.

#include <thread>

int first_half(int (*inside)());
int second_half(int (*inside)());

int main() {
    int first = 1;
    std::thread other([&first] { first = first_half([] { return second_half(nullptr); }); });
    const int second = second_half([] { return first_half(nullptr); });
    other.join();
    return first + second;
}
