package lab

// Result is what became of a check.
type Result struct {
	Name     string  `json:"name"`
	Pass     bool    `json:"pass"`
	Detail   string  `json:"detail"`
	Sent     int     `json:"sent"`
	Received int     `json:"received"`
	Lost     int     `json:"lost"`
	Seconds  float64 `json:"seconds"`
}

// Report is what `culvert lab run` says.
type Report struct {
	Lab     string   `json:"lab"`
	Pass    bool     `json:"pass"`
	Checks  []Result `json:"checks"`
	Kernel  string   `json:"kernel"`
	Culvert string   `json:"culvert"` // the binary that was run
	Seconds float64  `json:"seconds"`
}
