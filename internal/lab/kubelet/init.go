package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// service is a program that is started again when it ends, as by systemd.
type service struct {
	name string
	args func() ([]string, error) // of its next start
}

// restartTime is between the end of a service and its next start.
const restartTime = time.Second

// Init is the node's first process: it enters what the file, which Command wrote,
// says, starts the node's programs, and waits for all processes that nobody else
// waits for. SIGTERM ends it, and with it the node.
func Init(ctx context.Context, file string) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM)
	defer stop()
	text, err := os.ReadFile(file)
	var s Spec
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && os.Getpid() != 1 {
		err = fmt.Errorf("%s is a node's first process, or nothing", strings.Join(os.Args, " "))
	}
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Sethostname([]byte(s.Name)), s.enterRoot()); err != nil {
		return err
	}
	if err := os.Setenv("PATH", strings.Join([]string{s.Containerd, Bin, "/usr/sbin", "/usr/bin", "/sbin", "/bin"}, ":")); err != nil {
		return err
	}
	r := &reaper{waiting: map[int]chan unix.WaitStatus{}}
	go r.reap()
	for _, service := range s.services("/") {
		if err := r.serve(ctx, service); err != nil {
			return err
		}
		if service.name == "containerd" {
			if err := s.importImages(ctx, r); err != nil {
				return err
			}
		}
	}
	<-ctx.Done()
	return nil
}

// importImages waits for containerd, and gives it the images that the node has.
func (s Spec) importImages(ctx context.Context, r *reaper) error {
	archives, err := filepath.Glob(imageDir + "/*.tar")
	if err != nil {
		return err
	}
	for {
		if _, err = os.Stat(Socket); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, archive := range archives {
		args := Import(s.Containerd, filepath.Base(archive))
		cmd := exec.Command(args[0], args[1:]...)
		done, err := r.start(cmd, "ctr")
		if err != nil {
			return err
		}
		if status := <-done; status != 0 {
			return fmt.Errorf("%s ended with %d: see /var/log/ctr.log", cmd, status.ExitStatus())
		}
	}
	return nil
}

// Import is the command, in a node whose containerd is from this folder, that
// gives it an archive of the folder of images.
func Import(containerd, archive string) []string {
	return []string{containerd + "/ctr", "--address", Socket, "--namespace", "k8s.io", "images", "import", filepath.Join(imageDir, archive)}
}

// reaper waits for all processes of the node that have lost their parents. It
// alone waits: os/exec would wait for its own, too.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]chan unix.WaitStatus
}

// start starts a program whose output goes to a log. The channel gets its status
// when it ends.
func (r *reaper) start(cmd *exec.Cmd, log string) (<-chan unix.WaitStatus, error) {
	const logDir = "/var/log"
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, err
	}
	out, err := os.OpenFile(filepath.Join(logDir, log+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	r.mu.Lock() // until its number is known, should it end at once
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan unix.WaitStatus, 1)
	r.waiting[cmd.Process.Pid] = done
	return done, nil
}

func (r *reaper) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil { // nobody to wait for yet, or interrupted
			time.Sleep(10 * time.Millisecond)
			continue
		}
		r.mu.Lock()
		if done, ok := r.waiting[pid]; ok {
			done <- status
			delete(r.waiting, pid)
		}
		r.mu.Unlock()
	}
}

// serve starts a service, and has it started again until the node ends.
func (r *reaper) serve(ctx context.Context, s service) error {
	start := func() (<-chan unix.WaitStatus, error) {
		args, err := s.args()
		if err != nil {
			return nil, err
		}
		return r.start(exec.Command(args[0], args[1:]...), s.name)
	}
	done, err := start()
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			status := <-done
			slog.Warn("a program of the node ended", "program", s.name, "status", status.ExitStatus(), "signal", status.Signal())
			time.Sleep(restartTime)
			if done, err = start(); err != nil {
				slog.Error("a program of the node cannot be started", "program", s.name, "error", err)
				return
			}
		}
	}()
	return nil
}
