package gnb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-net/culvert/internal/lab/namespace"
)

// markPrefix and this process's number are the mark of namespaces.
const markPrefix = "culvert gnb "

func ownMark() string { return markPrefix + strconv.Itoa(os.Getpid()) }

// ownerOf is the process that made a namespace; ok is false if its mark is not of this
// command's.
func ownerOf(mark string) (pid int, ok bool) {
	text, ok := strings.CutPrefix(mark, markPrefix)
	pid, err := strconv.Atoi(text)
	return pid, ok && err == nil
}

// makeNamespaces makes one for each UE.
func (a *Attachment) makeNamespaces() error {
	for i := range a.Sessions {
		n := namespace.Named{Name: a.o.Name + strconv.Itoa(i+1)}
		if err := a.makeNamespace(n); err != nil {
			return err
		}
		a.made = append(a.made, n)
		a.Sessions[i].Namespace = n.Name
	}
	return nil
}

// makeNamespace takes the place of a namespace that a killed process left, and of no
// other.
func (a *Attachment) makeNamespace(n namespace.Named) error {
	err := n.Create(a.mark)
	if !errors.Is(err, namespace.ErrForeign) {
		return err
	}
	mark, _, err := n.Mark()
	if err != nil {
		return err
	}
	pid, ours := ownerOf(mark)
	switch {
	case !ours:
		return fmt.Errorf("--name: there is a network namespace %s, which culvert gnb did not make: give another name", n.Name)
	case !errors.Is(unix.Kill(pid, 0), unix.ESRCH):
		return fmt.Errorf("--name: network namespace %s belongs to process %d, another culvert gnb: give another name", n.Name, pid)
	}
	a.say("removes network namespace %s, which process %d left", n.Name, pid)
	if err := n.Delete(mark); err != nil {
		return err
	}
	return n.Create(a.mark)
}

// giveDevice moves a UE's device into its namespace, and sets it up.
func (a *Attachment) giveDevice(s *Session) error {
	ns, device := namespace.Named{Name: s.Namespace}, s.Namespace
	err := namespaceOf(a.o.Namespace).Do(func() error {
		_, err := namespace.Output(exec.Command("ip", "link", "set", "dev", device, "netns", ns.Name))
		return err
	})
	if err != nil {
		return err
	}
	// Pinging needs no rights, and a device without an IPv6 address sends no IPv6.
	disabled := "0"
	if !s.UE6.IsValid() {
		disabled = "1"
	}
	for name, value := range map[string]string{"net/ipv4/ping_group_range": "0 2147483647", "net/ipv6/conf/" + device + "/disable_ipv6": disabled} {
		if err := ns.Sysctl(name, value); err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			return err
		}
	}
	lines := []string{
		"link set dev " + device + " addrgenmode none",
		fmt.Sprintf("link set dev %s mtu %d up", device, a.o.MTU),
	}
	if s.UE4.IsValid() {
		lines = append(lines, fmt.Sprintf("address add %s/32 dev %s", s.UE4, device), "route add 0.0.0.0/0 dev "+device)
	}
	if s.UE6.IsValid() {
		lines = append(lines, fmt.Sprintf("address add %s/128 dev %s nodad", s.UE6, device), "route add ::/0 dev "+device)
	}
	return ns.Batch(lines)
}

// Run runs a command in a UE's network namespace. It gets an interrupt when ctx ends.
func (a *Attachment) Run(ctx context.Context, s *Session, cmd *exec.Cmd) error {
	if err := (namespace.Named{Name: s.Namespace}).Do(cmd.Start); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
		case <-ctx.Done():
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended meanwhile
			select {
			case <-done:
			case <-time.After(time.Second):
				_ = cmd.Process.Kill()
			}
		}
	}()
	err := cmd.Wait()
	close(done)
	return err
}
