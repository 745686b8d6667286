package isolation

import (
	"errors"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/netpol"
)

// lastRetry is how long a namespace that has exceeded the room is closed at most until its policies are
// tried again. They are tried at once when they change.
const lastRetry = time.Minute

// exceeded is a namespace whose pods are closed because there is no room for its policies.
type exceeded struct {
	*netpol.ExceededError
	policies []*netpol.Policy
	until    time.Time // it is tried again
	wait     time.Duration
}

// bring has the data path hold what a state says. Where there is no room for the policies of a namespace
// its pods are closed, and those of others go on. rounds is held.
func (k *Keeper) bring(s *netpol.State) (netpol.Desired, error) {
	former := k.exceeded
	k.exceeded, s.Closed = map[string]*exceeded{}, map[string]bool{}
	now := time.Now()
	for name, e := range former {
		if now.Before(e.until) && slices.Equal(e.policies, policiesOf(s, name)) {
			k.exceeded[name], s.Closed[name] = e, true
		}
	}
	for {
		d := k.compiler.Compile(*s)
		for _, e := range d.Exceeded {
			k.exceed(s, former[e.Namespace], e)
		}
		err := k.path.Apply(d)
		var e *netpol.ExceededError
		switch {
		case err == nil:
			k.compiler.Applied()
			return d, nil
		case !errors.As(err, &e) || s.Closed[e.Namespace]:
			return d, err
		}
		k.compiler.Refused()
		k.exceed(s, former[e.Namespace], e)
	}
}

// exceed closes a namespace. former: it was closed before.
func (k *Keeper) exceed(s *netpol.State, former *exceeded, err *netpol.ExceededError) {
	e := &exceeded{err, policiesOf(s, err.Namespace), time.Time{}, k.pause}
	if former != nil && slices.Equal(e.policies, former.policies) {
		e.wait = min(2*former.wait, max(lastRetry, k.pause))
	}
	e.until = time.Now().Add(e.wait)
	k.exceeded[err.Namespace], s.Closed[err.Namespace] = e, true
}

// untilRetry is when the next namespace is tried again; 0: none is closed.
func (k *Keeper) untilRetry() (wait time.Duration) {
	k.rounds.Lock()
	defer k.rounds.Unlock()
	for _, e := range k.exceeded {
		if left := max(time.Until(e.until), k.pause); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

func policiesOf(s *netpol.State, namespace string) (out []*netpol.Policy) {
	for _, p := range s.Policies {
		if p.Namespace == namespace {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, (*netpol.Policy).Compare)
	return out
}
