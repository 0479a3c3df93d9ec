package org.apache.iceberg;

import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.events.CreateSnapshotEvent;
import org.apache.iceberg.relocated.com.google.common.collect.Lists;

/**
 * Commits position delete files to a table of format version 3.
 *
 * <p>Iceberg reads them there, because a table that was upgraded from version 2 has them, but its own commits refuse
 * to add them.
 */
public class PositionDeleteAppend extends SnapshotProducer<PositionDeleteAppend> {
  private final TableOperations operations;
  private final List<DeleteFile> files = Lists.newArrayList();
  private final SnapshotSummary.Builder summary = SnapshotSummary.builder();

  public PositionDeleteAppend(Table table) {
    this(((HasTableOperations) table).operations());
  }

  private PositionDeleteAppend(TableOperations operations) {
    super(operations);
    this.operations = operations;
  }

  public PositionDeleteAppend add(DeleteFile file) {
    files.add(file);
    summary.addedFile(spec(file.specId()), file);
    return this;
  }

  @Override
  public PositionDeleteAppend set(String property, String value) {
    summary.set(property, value);
    return this;
  }

  @Override
  protected PositionDeleteAppend self() {
    return this;
  }

  @Override
  protected String operation() {
    return DataOperations.DELETE;
  }

  @Override
  protected Map<String, String> summary() {
    return summary.build();
  }

  @Override
  protected List<ManifestFile> apply(TableMetadata base, Snapshot snapshot) {
    List<ManifestFile> manifests = Lists.newArrayList(writeDeleteManifests(files, spec(files.get(0).specId())));
    manifests.addAll(snapshot.allManifests(operations.io()));
    return manifests;
  }

  @Override
  protected void cleanUncommitted(Set<ManifestFile> committed) {
    // The tables are thrown away when one of their commits failed.
  }

  @Override
  public Object updateEvent() {
    return new CreateSnapshotEvent("", operation(), snapshotId(), 0, Map.of());
  }

  private PartitionSpec spec(int id) {
    return operations.current().spec(id);
  }
}
