package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/culvert-net/culvert/internal/bench/proc"
	"github.com/culvert-net/culvert/internal/netdev"
)

func (p Port) String() string {
	if p.Namespace == "" {
		return p.Interface
	}
	return fmt.Sprintf("%s in %s", p.Interface, p.Namespace)
}

// link reads the port's interface, which must be able to carry frames.
func (p Port) link() (l netdev.Link, err error) {
	err = proc.Inside(p.Namespace, func() error {
		i, err := netdev.NewInspector()
		if err != nil {
			return err
		}
		defer i.Close()
		s, err := i.Snapshot()
		if err != nil {
			return err
		}
		at := slices.IndexFunc(s.Links, func(l netdev.Link) bool { return l.Name == p.Interface })
		if at < 0 {
			return errors.New("there is no such interface (ip link shows those that are)")
		}
		switch l = s.Links[at]; {
		case !l.Ethernet:
			return errors.New("has no Ethernet header")
		case !l.Up:
			return fmt.Errorf("is down (fix: ip link set dev %s up)", l.Name)
		case !l.Carrier:
			return errNoCarrier
		}
		return nil
	})
	if err != nil {
		return netdev.Link{}, fmt.Errorf("interface %s: %w", p, err)
	}
	return l, nil
}

var errNoCarrier = errors.New("has no carrier: is the other end up?")

// carrierTime is for how long a network card may be without a link after an XDP
// program was attached: some drivers start the card anew.
const carrierTime = 10 * time.Second

// linkAgain reads the interface when a program has been attached.
func (p Port) linkAgain(ctx context.Context) (l netdev.Link, err error) {
	for end := time.Now().Add(carrierTime); ctx.Err() == nil; time.Sleep(look) {
		if l, err = p.link(); !errors.Is(err, errNoCarrier) || time.Now().After(end) {
			return l, err
		}
	}
	return l, ctx.Err()
}
