package smf

import (
	"errors"
	"fmt"

	"github.com/wmnsk/go-pfcp/ie"

	"github.com/culvert-net/culvert/internal/smf/wire"
)

// ErrUnanswered says that no answer came, however often the request was sent.
var ErrUnanswered = errors.New("no answer")

// RefusedError is an answer with another Cause than acceptance.
type RefusedError struct {
	Procedure string
	Cause     uint8
	Offending uint16 // IE type; 0: none named
	Rule      string // Failed Rule ID, such as "PDR 3"
}

// Error names cause, offending IE and rule.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s refused: cause %d", e.Procedure, e.Cause)
	if name := wire.CauseName(e.Cause); name != "" {
		text = fmt.Sprintf("%s refused: %s (cause %d)", e.Procedure, name, e.Cause)
	}
	if e.Offending != 0 {
		text += ", offending IE " + wire.IEName(e.Offending)
	}
	if e.Rule != "" {
		text += ", failed rule " + e.Rule
	}
	return text
}

// badAnswer is an answer that accepts a request, and lacks what it has to say.
func badAnswer(procedure, format string, args ...any) error {
	return fmt.Errorf("%s: the answer %s", procedure, fmt.Sprintf(format, args...))
}

// refusal is what an answer says, nil: acceptance.
func refusal(procedure string, a *wire.Answer) error {
	switch {
	case !a.Whole:
		return badAnswer(procedure, "is cut off within an IE")
	case a.Cause == ie.CauseRequestAccepted:
		return nil
	case a.Cause == 0:
		return badAnswer(procedure, "has no Cause")
	}
	return &RefusedError{procedure, a.Cause, a.Offending, wire.FailedRule(a.FailedRule)}
}
