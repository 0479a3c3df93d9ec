package ags1.interop.tables;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DataFiles;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PositionDeleteAppend;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.EqualityDeleteWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.encryption.EncryptedOutputFile;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.OutputFileFactory;

/** Delete files that Spark does not write, for unpartitioned tables, encrypted as the table says. */
public final class Deletes {
  private Deletes() {}

  /** Delete the rows that have one of these values in a column of the type long. */
  public static void byValue(Table table, String column, List<Number> values, String format) throws IOException {
    FileFormat fileFormat = FileFormat.fromString(format);
    Schema rows = table.schema().select(column);
    GenericFileWriterFactory factory =
        new GenericFileWriterFactory.Builder(table)
            .deleteFileFormat(fileFormat)
            .equalityFieldIds(new int[] {table.schema().findField(column).fieldId()})
            .equalityDeleteRowSchema(rows)
            .build();
    EqualityDeleteWriter<Record> writer =
        factory.newEqualityDeleteWriter(output(table, fileFormat), PartitionSpec.unpartitioned(), null);
    Record row = GenericRecord.create(rows);
    try (writer) {
      for (Number value : values) {
        writer.write(row.copy(Map.of(column, value.longValue())));
      }
    }
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit();
  }

  /** Delete the rows at these positions of a data file. */
  public static void byPosition(Table table, String dataFile, List<Number> positions, String format)
      throws IOException {
    FileFormat fileFormat = FileFormat.fromString(format);
    GenericFileWriterFactory factory =
        new GenericFileWriterFactory.Builder(table).deleteFileFormat(fileFormat).build();
    PositionDeleteWriter<Record> writer =
        factory.newPositionDeleteWriter(output(table, fileFormat), PartitionSpec.unpartitioned(), null);
    PositionDelete<Record> delete = PositionDelete.create();
    try (writer) {
      for (Number position : positions) {
        writer.write(delete.set(dataFile, position.longValue()));
      }
    }
    DeleteFile written = writer.toDeleteFile();
    new PositionDeleteAppend(table).add(written).commit();
  }

  /** Give the rows of a data file back that its deletion vector deletes; the vector's file stays as it is. */
  public static void removeVector(Table table, String dataFile) throws IOException {
    RowDelta delta = table.newRowDelta();
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        if (task.file().location().equals(dataFile)) {
          task.deletes().forEach(delta::removeDeletes);
        }
      }
    }
    delta.commit();
  }

  /** Remove a data file with what is deleted of it, and append it again with all its rows. */
  public static void appendAgain(Table table, String dataFile) throws IOException {
    DataFile found = null;
    try (CloseableIterable<FileScanTask> tasks = table.newScan().planFiles()) {
      for (FileScanTask task : tasks) {
        if (task.file().location().equals(dataFile)) {
          found = task.file().copy();
        }
      }
    }
    table.newDelete().deleteFile(found).commit();
    table.newAppend().appendFile(DataFiles.builder(table.spec()).copy(found).withFirstRowId(null).build()).commit();
  }

  private static EncryptedOutputFile output(Table table, FileFormat format) {
    return OutputFileFactory.builderFor(table, 1, 1).format(format).suffix("deletes").build().newOutputFile();
  }
}
