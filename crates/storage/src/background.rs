//! Threads whose work nobody waits for give way to those that answer: the keeper of a database, with its checkpoints.

/// How far such a thread steps back: the system gives it about a tenth of what another one gets, where both
/// want the same processor.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lets the calling thread, and those that it starts from now on, step back behind others where processors
/// are scarce. There is no way back; where the system does not allow it, or cannot do it for a single
/// thread, nothing changes.
pub fn step_back() {
    #[cfg(target_os = "linux")]
    {
        // No process: that is the calling thread, under Linux alone.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_steps_back_alone_and_with_those_that_it_starts() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let (own, of_another) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                step_back();
                let another = std::thread::scope(|scope| scope.spawn(niceness).join().unwrap());
                (niceness(), another)
            });
            thread.join().unwrap()
        });
        let wanted = before.max(NICENESS);
        assert_eq!((own, of_another, niceness()), (wanted, wanted, before));
    }
}
