#include "reference/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "reference/check.hpp"

namespace quads {
namespace {

constexpr int kSpins = 4000;  // looks at a shared word before sleeping; waking a sleeper costs as much as a small job

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Workers that wait for one job at a time; the calling thread takes part 0. Whoever waits looks for a while and then
// sleeps.
class Pool {
public:
    explicit Pool(int threads) {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
    }
    ~Pool() {
        stop_ = true;
        start_generation();
        for (std::thread& worker : workers_) worker.join();
    }
    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // Runs job(part) for part = 0 .. size()-1 and waits for all of them.
    void run(const std::function<void(int)>& job) {
        job_ = &job;
        error_ = nullptr;
        pending_ = size() - 1;
        start_generation();
        attempt(0);
        wait_until(done_, [this] { return pending_ == 0; });
        if (error_) std::rethrow_exception(error_);
    }

private:
    // A condition that sleepers wait for. Whoever makes it true wakes them only if there are any.
    struct Bell {
        std::mutex mutex;
        std::condition_variable rung;
        std::atomic<int> sleepers{0};

        void ring() {
            if (sleepers == 0) return;
            std::lock_guard<std::mutex> lock(mutex);
            rung.notify_all();
        }
    };

    template <typename Condition>
    static void wait_until(Bell& bell, const Condition& condition) {
        for (int spin = 0; spin < kSpins; ++spin) {
            if (condition()) return;
            pause();
        }
        // A sleeper counts itself before its last look and the other side looks at the count after its change, so one
        // of the two sees the other (both in sequentially consistent order).
        std::unique_lock<std::mutex> lock(bell.mutex);
        ++bell.sleepers;
        bell.rung.wait(lock, condition);
        --bell.sleepers;
    }

    void start_generation() {
        ++generation_;
        started_.ring();
    }
    void attempt(int part) {
        try {
            (*job_)(part);
        } catch (...) {
            std::lock_guard<std::mutex> lock(error_mutex_);
            if (!error_) error_ = std::current_exception();
        }
    }
    void work(int part) {
        for (long seen = 0;; ++seen) {
            wait_until(started_, [&] { return generation_ != seen; });
            if (stop_) return;
            attempt(part);
            if (--pending_ == 0) done_.ring();
        }
    }

    std::vector<std::thread> workers_;
    Bell started_, done_;
    const std::function<void(int)>* job_ = nullptr;
    std::mutex error_mutex_;
    std::exception_ptr error_;
    std::atomic<long> generation_{0};
    std::atomic<int> pending_{0};
    std::atomic<bool> stop_{false};
};

int requested_threads = 0;
std::atomic<int> shares{0};
thread_local bool inside_job = false;

// Asked once: the answer comes from files of the system, which cost more than a small operation.
int machine_threads() {
    static const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    return count;
}

// One for each thread that calls, so that callers do not wait for each other. Built at its first use, large enough for
// any number of threads asked for by then.
Pool& pool() {
    thread_local Pool instance(std::max(threads(), machine_threads()));
    return instance;
}

}  // namespace

void set_threads(int threads) {
    check(threads >= 0, "The number of threads must not be negative, but it is ", threads, ".");
    requested_threads = threads;
}

int threads() { return requested_threads > 0 ? requested_threads : machine_threads(); }

MachineShare::MachineShare() { ++shares; }
MachineShare::~MachineShare() { --shares; }

void parallel_ranges(int n, int grain, const std::function<void(int, int)>& body) {
    if (n <= 0) return;
    const int available = inside_job ? 1 : threads() / std::max(1, shares.load());
    const int wanted = std::min(available, n / std::max(1, grain));
    if (wanted <= 1) return body(0, n);
    const int parts = std::min(wanted, pool().size());
    pool().run([&](int part) {
        if (part >= parts) return;
        inside_job = true;
        const auto share = [&](int i) { return static_cast<int>(static_cast<long>(n) * i / parts); };
        try {
            body(share(part), share(part + 1));
        } catch (...) {
            inside_job = false;
            throw;
        }
        inside_job = false;
    });
}

}  // namespace quads
