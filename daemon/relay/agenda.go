package relay

import (
	"cmp"
	"slices"
	"time"
)

// agenda is what the loop has to do later, behind one timer, in the order of
// time. It belongs to the loop. New alarms mostly ring last, so that a sorted
// slice does.
type agenda struct {
	alarms []*alarm
	set    uint64 // how many ever were
}

// alarm is one entry of the agenda.
type alarm struct {
	at     time.Time
	number uint64 // as set, so that equal times ring in that order
	do     func()
}

func (al *alarm) compare(other *alarm) int {
	return cmp.Or(al.at.Compare(other.at), cmp.Compare(al.number, other.number))
}

// after sets an alarm.
func (a *agenda) after(d time.Duration, do func()) *alarm { return a.at(time.Now().Add(d), do) }

func (a *agenda) at(t time.Time, do func()) *alarm {
	a.set++
	al := &alarm{at: t, number: a.set, do: do}
	i, _ := slices.BinarySearchFunc(a.alarms, al, (*alarm).compare)
	a.alarms = slices.Insert(a.alarms, i, al)
	return al
}

// stop takes an alarm back; nil and rung ones are fine.
func (a *agenda) stop(al *alarm) {
	if al == nil {
		return
	}
	if i, found := slices.BinarySearchFunc(a.alarms, al, (*alarm).compare); found {
		a.alarms = slices.Delete(a.alarms, i, i+1)
	}
}

// next returns when the first alarm rings.
func (a *agenda) next() (time.Time, bool) {
	if len(a.alarms) == 0 {
		return time.Time{}, false
	}
	return a.alarms[0].at, true
}

// ring does what is due.
func (a *agenda) ring(now time.Time) {
	for {
		at, ok := a.next()
		if !ok || at.After(now) {
			return
		}
		al := a.alarms[0]
		a.alarms = slices.Delete(a.alarms, 0, 1)
		al.do()
	}
}
