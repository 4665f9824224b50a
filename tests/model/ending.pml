// How a run ends, and how the end is announced: drain, announcement, waiting tokens, a failed run that recovers, and a
// cancelled run that a person makes continue and may cancel again. A small model of docs/explanation/protocol.md, for Spin.
//
// One step is one call of AWS: a `d_step`. Between two steps of a process the others may take any number of steps, or
// the process may die; its successor starts without its variables. A variable that a process no longer needs is set to
// 0, so that there are fewer different states.
//
// FAULTS: how many faults may happen: a death, an event that is lost or delivered twice, the loss of the execution.
// CANCELS: whether people cancel the run, make it continue (once), and cancel it again. REOPENS: how many chunks
// recoveries reopen. With FAULT=n the model has the n-th deliberate fault of check.py, which the checker has to find.
// With REACHED=n it claims that the n-th expected state is never reached, which the checker has to refute.

#ifndef FAULTS
#define FAULTS 1
#define CANCELS 1
#define REOPENS 1
#endif
#ifndef FAULT
#define FAULT 0
#define REACHED 0
#endif

#define UNLESS(n, condition) (FAULT == n || (condition))  // a condition that the n-th fault leaves out
#define GOES_WRONG faults < FAULTS -> faults++
#define BIT(n) (1 << (n))

mtype = { none, pending, running, completed, failed, cancelled, waits, over };
mtype = { idle, attempt, cancel, stop, check, look, answer, look_again, end_again, recover, announce, record };

// ---- the ledger
mtype chunk[2] = pending;
byte n_completed, n_failed;
bool drained;
byte drains;
mtype ended_as = none;   // `ended_status`: the terminal status of the run, recorded after its announcement
bool open = true;        // whether the sweeper checks the run
bool stopped;            // `cancelled_at`
bool went_on;            // `uncancelled_at`
// ---- the workflow-state item
mtype status = running;
byte writes;             // `updated_at`: cancellations written so far; the status itself shows the other writes
byte token;              // the token that waits for the drain; the service keeps all, but only the newest matters
mtype announced = none;  // the status that was announced last
// ---- the state machine
mtype machine = waits;   // it waits for the drain, is about to write `completed` or `failed`, or has ended
byte asked = 1;          // how often it has asked whether the run has drained: only its last token is valid
byte questions = BIT(1); // its tokens on their way to the status service
// ---- messages in flight, and history
bool news;               // an event after which the status service checks the run
bool drain_announced;               // whether `run.drained` was published since the run drained last
byte requests;           // cancellations in flight: BIT(`went_on` as the person saw it)
bool cancel_requested;             // whether a person wants the run, in its present state, to be cancelled
byte faults, reopened;

#define ALL_ENDED (n_completed + n_failed == 2)
#define VERDICT(n) (n == 0 -> completed : failed)  // no failed chunk is tolerated

inline changes_end() { ended_as = none; open = true }
inline leaves(next) { machine = next; token = 0; questions = 0 }  // its tokens are no longer valid

// If two processes are identical, the second begins only while the first is working. That halves the states.
bool working, checking;
#define TURN(busy) (at == idle && (!second || busy))
inline goes_to(busy, place) { at = place; busy = (second -> busy : place != idle) }

// ---- workers; two have the same chunk if one of them is presumed dead

#define BEGIN(n) d_step { TURN(working) && chunk[n] == pending && !stopped -> c = n; goes_to(working, attempt) }

proctype worker(bit second) {
  mtype at = idle;
  byte c;
end:
  do
  :: BEGIN(0) :: BEGIN(1)
  :: d_step {
       at == attempt && chunk[c] != completed ->
       // A late success removes the recorded end of the run, in the same transaction.
       if :: chunk[c] == failed -> n_failed--; ended_as = none; open = open || FAULT != 2; news = true :: else fi;
       chunk[c] = completed; n_completed++; c = 0; goes_to(working, idle)
     }
  :: d_step { at == attempt && chunk[c] == pending -> chunk[c] = failed; n_failed++; c = 0; goes_to(working, idle) }
  :: d_step { at == attempt && chunk[c] != pending -> c = 0; goes_to(working, idle) }  // another worker has ended it
  :: d_step { at == attempt && GOES_WRONG; c = 0; goes_to(working, idle) }
  od
}

// ---- the drain, by a worker or by the sweeper, at any time after all chunks have ended; and the sweeper on open runs

#define MAY_DRAIN !drained && UNLESS(7, ALL_ENDED)
inline drain() { drained = true; drains++; drain_announced = false; changes_end() }

active proctype sweeper() {
end:
  do
  :: d_step { MAY_DRAIN -> drain(); drain_announced = true; news = true }
  :: d_step { MAY_DRAIN && GOES_WRONG; drain() }  // the process that drained the run dies before it announces that
  :: d_step {
       open && (drained || !ALL_ENDED) && ended_as == none && !news && FAULT != 8 ->
       drain_announced = drain_announced || drained; news = true
     }
  :: d_step { open && UNLESS(9, ended_as != none) -> open = false }
  od
}

// ---- the state machine, and how the status service stores its tokens and writes its decision

#define ARRIVES(n) d_step { \
    questions & BIT(n) -> \
    questions = questions & ~BIT(n); \
    if \
    :: status != running && n == asked -> leaves(over)  /* the status service refuses it */ \
    :: status == running && UNLESS(10, n == asked) -> token = n \
    :: else \
    fi; \
    news = true }

active proctype state_machine() {
end:
  do  // It asks again with another token. The older one may still be in flight, and arrive last.
  :: d_step { machine == waits && asked == 1 -> asked = 2; questions = questions | BIT(2); token = 0 }
  :: ARRIVES(1) :: ARRIVES(2)
  :: d_step {  // Only a running run ends this way.
       machine == completed || machine == failed ->
       status = (UNLESS(11, status == running) -> machine : status); machine = over; news = true
     }
  od
}

// ---- people, recoveries, and losses; each of these steps may happen or not

#define REOPEN(n) d_step { \
    reopened < REOPENS && !stopped && chunk[n] == failed -> \
    reopened++; chunk[n] = pending; n_failed--; drained = drained && FAULT == 3; changes_end() }

active proctype chance() {
end:
  do
  :: d_step {
       CANCELS && !cancel_requested && status != completed && status != failed ->
       requests = requests | BIT(went_on); cancel_requested = true
     }
  :: d_step {  // A request to continue the run undoes a stop whose end is recorded.
       !went_on && stopped && UNLESS(5, ended_as == cancelled) ->
       stopped = false; went_on = true; cancel_requested = false; changes_end()
     }
  :: REOPEN(0) :: REOPEN(1)
  :: d_step { news && GOES_WRONG; news = false }              // an event is lost
  :: d_step { machine == waits && GOES_WRONG; leaves(over) }  // the execution is lost
#ifdef LIVE
  :: asked > 0  // always possible: doing nothing
#endif
  od
}

// ---- the status service: a cancellation; its message is redelivered until it is handled

inline handle(n) {
  if
  :: status == running -> status = cancelled; writes++; news = true
  :: status == cancelled && n && went_on && !stopped && !drained -> seen = n; my_drains = drains; at = cancel
  :: else -> news = true
  fi
}

#define REQUEST(n) d_step { at == idle && requests & BIT(n) -> requests = requests & ~BIT(n); handle(n) }
#define REQUEST_TWICE(n) d_step { at == idle && requests & BIT(n) && GOES_WRONG; handle(n) }

inline put_away() { seen = 0; my_drains = 0; at = idle }

active proctype canceller() {
  mtype at = idle;
  byte seen, my_drains;
end:
  do
  :: REQUEST(0) :: REQUEST(1)
  :: REQUEST_TWICE(0) :: REQUEST_TWICE(1)
  :: d_step {  // For a run that went on: the status first, so that a process that is about to end it sees a change.
       at == cancel ->
       if :: status == cancelled -> writes++; at = stop :: else -> news = true; put_away() fi
     }
  :: d_step {  // Then it stops the run, unless the run has drained since, or went on.
       at == stop ->
       stopped = stopped || (!drained && UNLESS(4, seen == went_on) && UNLESS(16, drains == my_drains));
       news = true; put_away()
     }
  :: d_step { at != idle && GOES_WRONG; requests = requests | BIT(seen); put_away() }
  od
}

// ---- the status service: check_run(run)

#define OVER (my_drained || my_stopped)

inline read_status() { my_status = status; my_writes = writes; my_token = (status == running -> token : 0) }

inline read_ledger() {
  my_drained = drained; my_drains = drains; my_failed = n_failed; my_stopped = stopped; my_went_on = went_on
}

inline forget() {
  my_status = none; my_writes = 0; my_token = 0; my_drained = false; my_drains = 0; my_failed = 0;
  my_stopped = false; my_went_on = false; goes_to(checking, idle)
}

inline next_step() {  // the next step for a run with a terminal status
  if
  :: my_status == cancelled && my_went_on && my_drained && UNLESS(6, !my_stopped) -> at = end_again
  :: my_status == failed && my_drained && my_failed == 0 && FAULT != 14 -> at = recover
  :: else -> at = announce
  fi
}

proctype checker(bit second) {
  mtype at = idle, my_status = none;
  byte my_writes, my_token, my_drains, my_failed;
  bool my_drained, my_stopped, my_went_on;
end:
  do  // the workflow-state item first, and then the ledger
  :: d_step { TURN(checking) && news -> news = false; read_status(); goes_to(checking, look) }
  :: d_step { TURN(checking) && news && GOES_WRONG; read_status(); goes_to(checking, look) }  // delivered twice
  :: d_step { at == check -> read_status(); at = look }
  :: d_step {
       at == look ->
       read_ledger();
       if
       :: my_status == running && OVER ->
          my_drains = 0; my_failed = (my_failed > 0 -> 1 : 0); my_stopped = false; my_went_on = false; at = answer
       :: my_status == ended_as || my_status == running && !OVER -> forget()
       :: my_status == cancelled && !OVER -> my_drains = 0; my_failed = 0; my_went_on = false; at = stop
       :: else -> next_step()
       fi
     }
  :: d_step {
       at == answer ->
       if  // Every known token is answered; only the one that the state machine waits with has an effect.
       :: machine == waits && my_token == asked -> leaves(VERDICT(my_failed)); forget()
       // The execution may be gone. Then the run is ended from the ledger, and checked again.
       :: machine == over && FAULT != 12 ->
          status = (status == running -> VERDICT(my_failed) : status); forget(); goes_to(checking, check)
       :: else -> forget()
       fi
     }
  :: d_step { at == stop -> stopped = stopped || (!drained && UNLESS(4, !went_on)); at = look_again }
  :: d_step { at == look_again -> read_ledger(); next_step() }
  :: d_step {  // The write has the condition that the item is as it was read.
       at == end_again ->
       status = (status == cancelled && UNLESS(13, writes == my_writes) -> VERDICT(my_failed) : status);
       forget(); goes_to(checking, check)
     }
  :: d_step { at == recover -> status = (status == failed -> completed : status); my_status = status; at = announce }
  :: d_step {  // It also stops the execution of a cancelled run, and announces once more that the run has drained.
       at == announce ->
       announced = (status == my_status -> my_status : announced);
       my_writes = 0; my_went_on = my_went_on && my_stopped;
       if :: my_status == cancelled && machine != over -> leaves(over) :: else fi;
       if :: my_drained && FAULT != 15 -> drain_announced = drain_announced || drains == my_drains; news = true :: else fi;
       if :: OVER -> at = record :: else -> forget() fi
     }
#define UNCHANGED (drained == my_drained && drains == my_drains && UNLESS(1, n_failed == my_failed) \
  && stopped == my_stopped && (!stopped || went_on == my_went_on))
  :: d_step { at == record -> ended_as = (UNCHANGED -> my_status : ended_as); forget() }
  :: d_step { at != idle && GOES_WRONG; forget() }
  od
}

// ---- the promises

#define IMPLIES(a, b) (!(a) || (b))
#define NUMBER(state) ((chunk[0] == state) + (chunk[1] == state))
#define HEARD (ended_as != none)
#define CHECK(claim) atomic { !(claim) -> assert(claim) }
#define NEVER(n, state) CHECK(IMPLIES(REACHED == n, !(state)))

init {
  atomic { run worker(0); run worker(1); run checker(0); run checker(1) }
end:
  if
  // The counters equal the items.
  :: CHECK(n_completed == NUMBER(completed) && n_failed == NUMBER(failed))
  :: CHECK(IMPLIES(drained, ALL_ENDED))
  // A recorded end is the ledger's, and no token waits. The drain was announced.
  :: CHECK(IMPLIES(HEARD, status == ended_as && announced == ended_as && machine == over))
  :: CHECK(IMPLIES(HEARD && drained && ended_as != cancelled, ended_as == VERDICT(n_failed) && drain_announced))
  :: CHECK(IMPLIES(ended_as == cancelled, stopped || (drained && !went_on)))
  // The owner: until the end is recorded, the sweeper checks the run and can have the end announced again.
  :: CHECK(IMPLIES(!HEARD, open))
  :: CHECK(IMPLIES(announced == completed, status == completed))
  // `cancelled` was announced before the run went on, and only a run that went on leaves that status.
  :: CHECK(IMPLIES(went_on, announced != none))
  :: CHECK(IMPLIES(announced == cancelled && status != cancelled, went_on))
  // A run is stopped only if a person who knew whether it went on wants that, and then it ends in no other way.
  :: CHECK(IMPLIES(stopped, cancel_requested && status == cancelled))
  // When no process has anything left to do, the end is recorded.
  :: timeout -> assert(HEARD && !open)
  // States that the checker has to reach.
  :: NEVER(1, announced == failed && status == completed)
  :: NEVER(2, ended_as == completed && asked == 2)
  :: NEVER(3, ended_as == completed && went_on)
  :: NEVER(4, ended_as == cancelled && went_on)
  fi
}

// After the last fault and the last request of a person, the end is recorded eventually, and stays recorded.
ltl ends { <>[] (HEARD && !open) }
