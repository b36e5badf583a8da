//! Limits that make no sense are refused before anything is made.

use stockade_core::limits::Limits;

use super::LimitError;

/// The least memory with which a shell starts.
pub const MINIMUM_MEMORY: u64 = 4 << 20;

/// Processes of ours inside every sandbox: the shim. They do not count against what the program may have.
const OWN_PROCESSES: u64 = 1;

/// The most processes that Linux can number; `pids.max` refuses more.
const MOST_PROCESSES: u64 = 4 << 20;

/// Refuses limits under which no program can start. Large ones are fine: the machine itself is the limit then.
pub fn check(limits: &Limits) -> Result<(), LimitError> {
    if let Some(memory) = limits.memory
        && memory.value < MINIMUM_MEMORY
    {
        return Err(LimitError::MemoryTooSmall { asked: memory.value, minimum: MINIMUM_MEMORY });
    }
    if limits.pids.is_some_and(|pids| pids.value == 0) {
        return Err(LimitError::NoProcesses);
    }
    if limits.cpu_millis.is_some_and(|cpu| cpu.value == 0) {
        return Err(LimitError::NoProcessor);
    }
    Ok(())
}

/// How many processes and threads the kernel must allow so that the program has as many as it may.
pub fn process_ceiling(limits: &Limits) -> Option<u64> {
    limits.pids.map(|pids| (u64::from(pids.value) + OWN_PROCESSES).min(MOST_PROCESSES))
}

#[cfg(test)]
mod tests {
    use stockade_core::limits::Limit;

    use super::*;

    #[test]
    fn absurd_limits_are_refused_with_the_minimum() {
        let memory = |value| Limits { memory: Some(Limit::asked(value)), ..Limits::default() };
        assert_eq!(
            check(&memory(1)).unwrap_err().to_string(),
            "a memory limit of 1 bytes is too small to start a program; the minimum is 4194304 bytes (4M)"
        );
        assert!(check(&memory(MINIMUM_MEMORY - 1)).is_err());
        assert!(check(&memory(MINIMUM_MEMORY)).is_ok());
        assert!(check(&memory(1 << 60)).is_ok(), "more than the machine has is no error");
        assert!(check(&Limits { pids: Some(Limit::asked(0)), ..Limits::default() }).is_err());
        assert!(check(&Limits { cpu_millis: Some(Limit::asked(0)), ..Limits::default() }).is_err());
        assert!(check(&Limits::default()).is_ok());
    }

    #[test]
    fn the_shim_is_not_counted_against_the_program() {
        let pids = |value| process_ceiling(&Limits { pids: Some(Limit::asked(value)), ..Limits::default() });
        assert_eq!(pids(1), Some(2));
        assert_eq!(pids(u32::MAX), Some(4 << 20), "the kernel refuses larger numbers");
        assert_eq!(process_ceiling(&Limits::default()), None);
    }
}
