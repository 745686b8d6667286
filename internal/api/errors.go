package api

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/culvert-net/culvert/internal/agent"
	"github.com/culvert-net/culvert/internal/agent/desired"
	"github.com/culvert-net/culvert/internal/agent/isolation"
	"github.com/culvert-net/culvert/internal/agent/pods"
	pb "github.com/culvert-net/culvert/internal/api/culvertv1"
	"github.com/culvert-net/culvert/internal/api/message"
	"github.com/culvert-net/culvert/internal/config"
	"github.com/culvert-net/culvert/internal/netpol"
)

// codes has the code of each error of the agent.
var codes = []struct {
	err  error
	code connect.Code
}{
	{desired.ErrInvalid, connect.CodeInvalidArgument},
	{desired.ErrNotFound, connect.CodeNotFound},
	{desired.ErrConflict, connect.CodeFailedPrecondition},
	{agent.ErrBusy, connect.CodeResourceExhausted},
	{pods.ErrExhausted, connect.CodeResourceExhausted},
	{pods.ErrNotReady, connect.CodeUnavailable},
	{pods.ErrTenant, connect.CodePermissionDenied},
	{agent.ErrNotUPF, connect.CodeUnimplemented},
	{agent.ErrNotBGP, connect.CodeUnimplemented},
	{agent.ErrNoAnnouncements, connect.CodeUnimplemented},
	{agent.ErrNoFlows, connect.CodeUnimplemented},
	{agent.ErrNoNAT, connect.CodeUnimplemented},
	{pods.ErrNoCluster, connect.CodeUnimplemented},
	{isolation.ErrOff, connect.CodeUnimplemented},
	{isolation.ErrUnknown, connect.CodeUnavailable},
	{netpol.ErrNoPod, connect.CodeNotFound},
	{netpol.ErrNoPort, connect.CodeInvalidArgument},
	{netpol.ErrNoProtocol, connect.CodeInvalidArgument},
	{netpol.ErrNoAddress, connect.CodeInvalidArgument},
	{context.Canceled, connect.CodeCanceled},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
}

// toConnect gives err its code, and its reasons as details.
func toConnect(err error) error {
	if err == nil {
		return nil
	}
	if _, done := errors.AsType[*connect.Error](err); done {
		return err
	}
	code := connect.CodeInternal
	for _, c := range codes {
		if errors.Is(err, c.err) {
			code = c.code
			break
		}
	}
	list, refused := errors.AsType[config.Errors](err)
	if refused {
		code = connect.CodeInvalidArgument
		if few := list.Few(); len(few) < len(list) {
			list, err = few, few
		}
	}
	out := connect.NewError(code, err)
	for _, problem := range list {
		p := &pb.Problem{}
		_ = message.Encode(problem, p) // it is text
		if detail, err := connect.NewErrorDetail(p); err == nil {
			out.AddDetail(detail)
		}
	}
	return out
}

// fromConnect undoes toConnect, so that the client's callers see the same
// errors as the agent's.
func fromConnect(err error) error {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	var list config.Errors
	for _, detail := range ce.Details() {
		value, err := detail.Value()
		if p, ok := value.(*pb.Problem); ok && err == nil {
			problem, _ := message.Decode[config.Error](p) // the same
			list = append(list, problem)
		}
	}
	if len(list) > 0 {
		return list
	}
	for _, c := range codes {
		if ce.Code() == c.code && ce.Code() != connect.CodeCanceled && ce.Code() != connect.CodeDeadlineExceeded {
			return &Error{message: ce.Message(), is: c.err}
		}
	}
	return ce
}

// Error is an error that the daemon returned: its message, and the error of the
// agent that it stands for.
type Error struct {
	message string
	is      error
}

func (e *Error) Error() string { return e.message }
func (e *Error) Unwrap() error { return e.is }
