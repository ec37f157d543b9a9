//go:build linux

package wine

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"testing"
)

const (
	pageSize   = 0x1000 // where the one section begins in memory
	sectorSize = 0x200  // where it begins in the file
)

// forwarder is a DLL for 64-bit Windows without any code. Its one export is that
// of another DLL: target is "dll.function".
func forwarder(t *testing.T, dll, export, target string) []byte {
	t.Helper()
	// The export directory, its three tables of one entry each, and the texts.
	const functions, names, ordinals, texts = 40, 44, 48, 50
	dllAt := pageSize + texts
	exportAt := dllAt + len(dll) + 1
	targetAt := exportAt + len(export) + 1
	end := targetAt + len(target) + 1
	section := littleEndian(t,
		uint32(0), uint32(0), uint32(0), // characteristics, time, version
		uint32(dllAt), uint32(1), uint32(1), uint32(1), // name, first ordinal, functions, names
		uint32(pageSize+functions), uint32(pageSize+names), uint32(pageSize+ordinals),
		// An address within the section is the text of a forward.
		uint32(targetAt), uint32(exportAt), uint16(0),
		[]byte(dll+"\x00"+export+"\x00"+target+"\x00"))

	optional := pe.OptionalHeader64{
		Magic: 0x20b, ImageBase: 0x180000000, SectionAlignment: pageSize, FileAlignment: sectorSize,
		MajorOperatingSystemVersion: 6, MajorSubsystemVersion: 6, Subsystem: pe.IMAGE_SUBSYSTEM_WINDOWS_CUI,
		SizeOfImage: 2 * pageSize, SizeOfHeaders: sectorSize, SizeOfInitializedData: sectorSize,
		DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT, NumberOfRvaAndSizes: 16,
	}
	size := uint32(end - pageSize)
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{VirtualAddress: pageSize, Size: size}
	const headerAt = 64
	file := littleEndian(t,
		[]byte("MZ"), make([]byte, headerAt-6), uint32(headerAt), []byte("PE\x00\x00"),
		pe.FileHeader{
			Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(optional)),
			Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE | pe.IMAGE_FILE_DLL,
		},
		optional,
		pe.SectionHeader32{
			Name: [8]uint8{'.', 'e', 'd', 'a', 't', 'a'}, VirtualSize: size, VirtualAddress: pageSize,
			SizeOfRawData: sectorSize, PointerToRawData: sectorSize,
			Characteristics: pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ,
		})
	whole := make([]byte, 2*sectorSize)
	copy(whole, file)
	copy(whole[sectorSize:], section)
	return whole
}

func littleEndian(t *testing.T, values ...any) []byte {
	t.Helper()
	var text bytes.Buffer
	for _, value := range values {
		if err := binary.Write(&text, binary.LittleEndian, value); err != nil {
			t.Fatal(err)
		}
	}
	return text.Bytes()
}
