#include "reference/parallel.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "reference/check.hpp"

namespace quads {
namespace {

// Workers that wait for one job at a time; the calling thread takes part 0.
class Pool {
public:
    explicit Pool(int threads) {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
    }
    ~Pool() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        for (std::thread& worker : workers_) worker.join();
    }
    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // Runs job(part) for part = 0 .. size()-1 and waits for all of them.
    void run(const std::function<void(int)>& job) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            job_ = &job;
            pending_ = size() - 1;
            error_ = nullptr;
            ++generation_;
        }
        wake_.notify_all();
        attempt(0);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return pending_ == 0; });
        if (error_) std::rethrow_exception(error_);
    }

private:
    void attempt(int part) {
        try {
            (*job_)(part);
        } catch (...) {
            std::lock_guard<std::mutex> lock(mutex_);
            if (!error_) error_ = std::current_exception();
        }
    }
    void work(int part) {
        long seen = 0;
        while (true) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
                if (stop_) return;
                seen = generation_;
            }
            attempt(part);
            std::lock_guard<std::mutex> lock(mutex_);
            if (--pending_ == 0) done_.notify_one();
        }
    }

    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(int)>* job_ = nullptr;
    std::exception_ptr error_;
    long generation_ = 0;
    int pending_ = 0;
    bool stop_ = false;
};

int requested_threads = 0;
thread_local bool inside_job = false;

int machine_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// Built at its first use, large enough for any number of threads asked for by then.
Pool& pool() {
    static Pool instance(std::max(threads(), machine_threads()));
    return instance;
}

}  // namespace

void set_threads(int threads) {
    check(threads >= 0, "The number of threads must not be negative, but it is ", threads, ".");
    requested_threads = threads;
}

int threads() { return requested_threads > 0 ? requested_threads : machine_threads(); }

void parallel_ranges(int n, int grain, const std::function<void(int, int)>& body) {
    if (n <= 0) return;
    const int wanted = inside_job ? 1 : std::min(threads(), n / std::max(1, grain));
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
