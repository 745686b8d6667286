// Functions without a body (handover.go) need a file of assembly beside them.
