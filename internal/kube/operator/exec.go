package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/culvert-net/culvert/internal/connectivity"
)

// Exec runs a command in a container. What it wrote to standard error is in the
// error, if it failed; its output comes with the error. It speaks by WebSocket, and to API servers older than
// Kubernetes 1.30 by SPDY, as kubectl does.
func (c *Client) Exec(ctx context.Context, in connectivity.Container, stdin io.Reader, command ...string) ([]byte, error) {
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, err
	}
	at := base.JoinPath("api/v1/namespaces", in.Namespace, "pods", in.Pod, "exec")
	at.RawQuery = url.Values{
		"container": {in.Name}, "command": command, "stdin": {fmt.Sprint(stdin != nil)}, "stdout": {"true"}, "stderr": {"true"},
	}.Encode()
	newer, err := remotecommand.NewWebSocketExecutor(c.config, "GET", at.String())
	if err != nil {
		return nil, err
	}
	older, err := remotecommand.NewSPDYExecutor(c.config, "POST", at)
	if err != nil {
		return nil, err
	}
	executor, err := remotecommand.NewFallbackExecutor(newer, older, httpstream.IsUpgradeFailure)
	if err != nil {
		return nil, err
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // what goes wrong is in the error
	var out, problem bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &problem})
	if text := strings.TrimSpace(problem.String()); err != nil && text != "" {
		return out.Bytes(), errors.New(text)
	}
	if err != nil {
		return out.Bytes(), fmt.Errorf("%s in %s/%s: %w", strings.Join(command, " "), in.Namespace, in.Pod, err)
	}
	return out.Bytes(), nil
}
