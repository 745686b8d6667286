package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/culvert-net/culvert/internal/connectivity"
)

// Exec runs a command in a container. What it wrote to standard error is in the
// error, if it failed; its output comes with the error.
func (c *Client) Exec(ctx context.Context, in connectivity.Container, stdin io.Reader, command ...string) ([]byte, error) {
	var out bytes.Buffer
	err := c.exec(ctx, in, stdin, &out, command)
	if ctx.Err() != nil { // something may write to out still
		return nil, err
	}
	return out.Bytes(), err
}

// Dial runs a command in a container and returns the connection to it: what is written is the
// command's standard input, what is read its output. A read after the command's end fails as
// Exec does, or with io.EOF. The connection ends when ctx does.
func (c *Client) Dial(ctx context.Context, in connectivity.Container, command ...string) net.Conn {
	ctx, cancel := context.WithCancel(ctx)
	ours, theirs := net.Pipe()
	s := &stream{Conn: ours, cancel: cancel}
	go func() {
		defer cancel()
		s.err = c.exec(ctx, in, theirs, theirs, command)
		theirs.Close()
	}()
	return s
}

// grace is how long a command may take to end when its standard input does.
const grace = 2 * time.Second

// stream is a connection to a command.
type stream struct {
	net.Conn
	cancel context.CancelFunc
	err    error // why the command failed: set before the other end of the pipe is closed
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if errors.Is(err, io.EOF) && s.err != nil {
		err = s.err
	}
	return n, err
}

// Close ends the command's standard input, and soon after that the connection to it.
func (s *stream) Close() error {
	time.AfterFunc(grace, s.cancel)
	return s.Conn.Close()
}

// exec runs a command in a container until it ends or ctx does. It speaks by WebSocket, and to API
// servers older than Kubernetes 1.30 by SPDY, as kubectl does.
func (c *Client) exec(ctx context.Context, in connectivity.Container, stdin io.Reader, stdout io.Writer, command []string) error {
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return err
	}
	at := base.JoinPath("api/v1/namespaces", in.Namespace, "pods", in.Pod, "exec")
	at.RawQuery = url.Values{
		"container": {in.Name}, "command": command, "stdin": {fmt.Sprint(stdin != nil)}, "stdout": {"true"}, "stderr": {"true"},
	}.Encode()
	newer, err := remotecommand.NewWebSocketExecutor(c.config, "GET", at.String())
	if err != nil {
		return err
	}
	older, err := remotecommand.NewSPDYExecutor(c.config, "POST", at)
	if err != nil {
		return err
	}
	refused := false
	executor, err := remotecommand.NewFallbackExecutor(newer, older, func(err error) bool {
		refused = httpstream.IsUpgradeFailure(err)
		return refused
	})
	if err != nil {
		return err
	}
	logless := klog.NewContext(ctx, logr.Discard()) // what goes wrong is in the error
	var problem bytes.Buffer
	err = executor.StreamWithContext(logless, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: &problem})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s in %s/%s: %w", strings.Join(command, " "), in.Namespace, in.Pod, err)
	if ctx.Err() != nil { // something may write to problem still
		return err
	}
	if text := strings.TrimSpace(problem.String()); text != "" {
		return errors.New(text)
	}
	if refused {
		if missing, ok := errors.AsType[*RightsError](c.require(ctx, []right{{"create", "", "pods/exec", in.Namespace}})); ok {
			return missing
		}
	}
	return err
}
