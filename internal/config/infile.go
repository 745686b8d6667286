package config

import (
	"errors"
	"fmt"
	"strings"
)

// fileErrors are Errors in the way of compilers, which editors know.
type fileErrors struct {
	file string
	Errors
}

// MostShown is how many errors are read by a person.
const MostShown = 50

func (e *fileErrors) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s is not taken:", e.file)
	for _, one := range e.Errors[:min(len(e.Errors), MostShown)] {
		at := e.file
		if one.Line > 0 {
			at = fmt.Sprintf("%s:%d", e.file, one.Line)
			one.Line, one.Resource = 0, ""
		}
		fmt.Fprintf(&text, "\n  %s: %s", at, one.Error())
	}
	if more := len(e.Errors) - MostShown; more > 0 {
		fmt.Fprintf(&text, "\n  and %d more: repair these first", more)
	}
	return text.String()
}

// InFile adds the name of the file to Errors.
func InFile(file string, err error) error {
	if list, ok := errors.AsType[Errors](err); ok {
		return &fileErrors{file, list}
	}
	return err
}
