package gnb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/gtpulink"
	"github.com/culvert-net/culvert/internal/lab/namespace"
	"github.com/culvert-net/culvert/internal/plural"
	"github.com/culvert-net/culvert/internal/probe"
	"github.com/culvert-net/culvert/internal/smf"
)

// Attachment is a gNB with its UEs.
type Attachment struct {
	// Sessions are those of the UEs, in order.
	Sessions []Session
	// Association is the UPF's, if Attach made it.
	Association smf.Association

	o      Options
	client *smf.Client // nil: somebody else made the sessions
	group  *smf.Group

	endpoint *gtpulink.Endpoint
	stop     context.CancelFunc // of the endpoint
	ended    chan struct{}      // the endpoint is closed
	failed   error              // of the endpoint, once ended

	mark string
	made []namespace.Named
}

// Attach makes sessions, namespaces and devices. After an error nothing is left.
func Attach(ctx context.Context, o Options) (*Attachment, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	a := &Attachment{o: o, Sessions: o.Given, mark: ownMark()}
	if o.SMF != nil {
		a.Sessions = make([]Session, max(o.Spec.Count, 1))
	}
	err := a.makeNamespaces()
	if err == nil && o.SMF != nil {
		err = a.establish(ctx)
	}
	if err == nil {
		err = a.open()
	}
	if err == nil && a.group != nil {
		err = a.forward(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Attachment) say(format string, args ...any) {
	if a.o.Say != nil {
		a.o.Say(fmt.Sprintf(format, args...))
	}
}

// establish makes the sessions. Downlink packets go nowhere yet.
func (a *Attachment) establish(ctx context.Context) (err error) {
	n4 := namespaceOf(a.o.N4Namespace)
	err = n4.Do(func() (err error) {
		a.client, err = smf.Dial(*a.o.SMF)
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("--n4-netns: there is no network namespace %s: see ip netns", a.o.N4Namespace)
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%w: another SMF, or another culvert gnb, runs there: give another --local and --node-id", err)
	case err != nil:
		return err
	}
	a.say("N4: association with %s", a.o.SMF.UPF)
	if a.Association, err = a.client.Associate(ctx); err != nil {
		return n4Hint(err, a.o.SMF.UPF)
	}
	if a.group, err = a.client.Add(a.o.spec()); err != nil {
		return err
	}
	result, err := a.group.Establish(ctx, smf.Pace{})
	if err = errors.Join(err, result.Err()); err != nil {
		return err
	}
	a.say("N4: %s", plural.Of(a.group.Count(), "session"))
	for i := range a.Sessions {
		name := a.Sessions[i].Namespace
		if a.Sessions[i], err = a.o.sessionOf(a.group.Info(i)); err != nil {
			return err
		}
		a.Sessions[i].Namespace = name
	}
	return nil
}

// n4Hint says what may be wrong with a UPF that does not answer.
func n4Hint(err error, upf netip.AddrPort) error {
	if errors.Is(err, smf.ErrUnanswered) {
		return fmt.Errorf("%w: does a UPF listen on %s, does it allow this SMF's address (of Culvert: upf.n4, upf.smfs, role n4), and does a route lead back?", err, upf)
	}
	return err
}

// forward tells the UPF where the gNB is.
func (a *Attachment) forward(ctx context.Context) error {
	result, err := a.group.Forward(ctx, smf.Pace{})
	return errors.Join(err, result.Err())
}

// namespaceOf is a network namespace by its name; without one it is this process's.
func namespaceOf(name string) probe.Space {
	if name == "" {
		return probe.Here{}
	}
	return namespace.Named{Name: name}
}

// open makes the gNB and the devices of the UEs, and starts the gNB.
func (a *Attachment) open() error {
	var links []gtpulink.Link
	for _, s := range a.Sessions {
		links = append(links, gtpulink.Link{
			Device: s.Namespace, Local: a.o.N3, Remote: s.UPF.Address, TEID: s.GNB.TEID, RemoteTEID: s.UPF.TEID, Container: gtpulink.Uplink, QFI: s.QFI,
		})
	}
	err := namespaceOf(a.o.Namespace).Do(func() (err error) {
		a.endpoint, err = gtpulink.Open(links)
		return err
	})
	if err != nil {
		return a.n3Hint(err)
	}
	a.endpoint.Refuse = true
	ctx, stop := context.WithCancel(context.Background())
	a.stop, a.ended = stop, make(chan struct{})
	go func() {
		defer close(a.ended)
		if err := a.endpoint.Run(ctx); ctx.Err() == nil {
			a.failed = err
		}
	}()
	for i := range a.Sessions {
		if err := a.giveDevice(&a.Sessions[i]); err != nil {
			return err
		}
	}
	return nil
}

// n3Hint says what is wrong with the gNB's address.
func (a *Attachment) n3Hint(err error) error {
	where := "this network namespace"
	if a.o.Namespace != "" {
		where = "network namespace " + a.o.Namespace
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && a.o.Namespace != "":
		return fmt.Errorf("--netns: there is no network namespace %s: see ip netns", a.o.Namespace)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("--n3: %s is no address of %s: add it, or give --netns", a.o.N3, where)
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("--n3: something in %s has UDP port %d of %s already: another gNB, or the UPF itself? Give the gNB a network namespace of its own", where, gtpulink.Port, a.o.N3)
	}
	return fmt.Errorf("N3: %w", err)
}

// Ended is closed when the gNB ends: by Close, or because it fails.
func (a *Attachment) Ended() <-chan struct{} { return a.ended }

// Err is why the gNB failed. It is read once Ended is closed.
func (a *Attachment) Err() error { return a.failed }

// Reports is where the UPF's reports arrive; nil: somebody else made the sessions.
func (a *Attachment) Reports() <-chan smf.Report {
	if a.client == nil {
		return nil
	}
	return a.client.Reports()
}

// Stats are the gNB's counters.
func (a *Attachment) Stats() gtpulink.Stats {
	var r gtpulink.Response
	_ = a.endpoint.Stats(gtpulink.Request{}, &r) // it has no error
	return r.Stats
}

// closeLimit is how long the UPF may take to delete the sessions.
const closeLimit = 5 * time.Second

// Close deletes the sessions, the devices and the namespaces.
func (a *Attachment) Close() error {
	errs := []error{a.release()}
	if a.stop != nil {
		a.stop()
		<-a.ended
	}
	for _, n := range a.made {
		if err := n.Delete(a.mark); err != nil {
			errs = append(errs, fmt.Errorf("remove network namespace %s: %w", n.Name, err))
		}
	}
	return errors.Join(errs...)
}

// release deletes the sessions that Attach made, and the association with them.
func (a *Attachment) release() error {
	if a.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var err error
	if a.group != nil {
		var result smf.Result
		result, err = a.group.Delete(ctx, smf.Pace{})
		err = errors.Join(err, result.Err())
	}
	if err == nil && a.Association.NodeID != "" {
		err = a.client.Release(ctx)
	}
	if err != nil {
		err = fmt.Errorf("release: %w: the UPF may keep the session until its SMF associates again", err)
	}
	if closed := a.client.Close(); !errors.Is(closed, net.ErrClosed) {
		err = errors.Join(err, closed)
	}
	return err
}
