package session

// Reporting Triggers (TS 29.244 section 8.2.19), first octet lowest.
const (
	TriggerPeriodic          uint32 = 1 << 0  // PERIO
	TriggerVolumeThreshold   uint32 = 1 << 1  // VOLTH
	TriggerTimeThreshold     uint32 = 1 << 2  // TIMTH
	TriggerQuotaHolding      uint32 = 1 << 3  // QUHTI
	TriggerStart             uint32 = 1 << 4  // START
	TriggerStop              uint32 = 1 << 5  // STOPT
	TriggerDroppedDownlink   uint32 = 1 << 6  // DROTH
	TriggerLinked            uint32 = 1 << 7  // LIUSA
	TriggerVolumeQuota       uint32 = 1 << 8  // VOLQU
	TriggerTimeQuota         uint32 = 1 << 9  // TIMQU
	TriggerEnvelopeClosure   uint32 = 1 << 10 // ENVCL
	TriggerMACAddresses      uint32 = 1 << 11 // MACAR
	TriggerEventThreshold    uint32 = 1 << 12 // EVETH
	TriggerEventQuota        uint32 = 1 << 13 // EVEQU
	TriggerIPMulticastJoin   uint32 = 1 << 14 // IPMJL
	TriggerQuotaValidity     uint32 = 1 << 15 // QUVTI
	TriggerReportEndMarker   uint32 = 1 << 16 // REEMR
	TriggerUserPlaneInactive uint32 = 1 << 17 // UPINT
)

// Cause says why usage is reported: the bits of Usage Report Trigger (TS 29.244
// section 8.2.41), first octet lowest.
type Cause uint32

// The causes of a usage report.
const (
	CausePeriodic        Cause = 1 << 0  // PERIO
	CauseVolumeThreshold Cause = 1 << 1  // VOLTH
	CauseTimeThreshold   Cause = 1 << 2  // TIMTH
	CauseQuotaHolding    Cause = 1 << 3  // QUHTI
	CauseStart           Cause = 1 << 4  // START
	CauseStop            Cause = 1 << 5  // STOPT
	CauseDroppedDownlink Cause = 1 << 6  // DROTH
	CauseImmediate       Cause = 1 << 7  // IMMER: asked for by Query URR
	CauseVolumeQuota     Cause = 1 << 8  // VOLQU
	CauseTimeQuota       Cause = 1 << 9  // TIMQU
	CauseLinked          Cause = 1 << 10 // LIUSA
	CauseTermination     Cause = 1 << 11 // TERMR: the session or the URR went
	CauseMonitoringTime  Cause = 1 << 12 // MONIT
	CauseMACAddresses    Cause = 1 << 14 // MACAR
	CauseQuotaValidity   Cause = 1 << 19 // QUVTI
	CauseInactivity      Cause = 1 << 21 // UPINT
)
